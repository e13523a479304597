//! How content is compressed, by its first bytes: what manifests say of it is not always true.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
};

use flate2::bufread::MultiGzDecoder;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    pub(crate) fn of(first: &[u8]) -> Self {
        match first {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or one that is to be skipped and comes before others.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    pub(crate) fn of_file(file: &mut File) -> io::Result<Self> {
        let mut first = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.take(4).read_to_end(&mut first)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Self::of(&first))
    }
}

/// What comes out of content once it is decompressed.
pub(crate) enum Decoder<R: BufRead> {
    None(R),
    Gzip(Box<MultiGzDecoder<R>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, R>>),
}

impl<R: BufRead> Decoder<R> {
    pub(crate) fn new(compression: Compression, input: R) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::None(input),
            Compression::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(input))),
            Compression::Zstd => {
                Self::Zstd(Box::new(zstd::stream::read::Decoder::with_buffer(input)?))
            }
        })
    }

    /// What the content is read from.
    pub(crate) fn input(&self) -> &R {
        match self {
            Self::None(input) => input,
            Self::Gzip(decoder) => decoder.get_ref(),
            Self::Zstd(decoder) => decoder.get_ref(),
        }
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::None(input) => input.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

/// Counts what was read.
#[derive(Debug)]
pub(crate) struct Counted<R> {
    input: R,
    pub(crate) bytes: u64,
}

impl<R> Counted<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, bytes: 0 }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

/// A file that is decompressed as it is read, and how much of it was read.
pub(crate) type FileDecoder = Decoder<BufReader<Counted<File>>>;

pub(crate) fn open(mut file: File) -> io::Result<FileDecoder> {
    let compression = Compression::of_file(&mut file)?;
    Decoder::new(compression, BufReader::with_capacity(256 << 10, Counted::new(file)))
}
