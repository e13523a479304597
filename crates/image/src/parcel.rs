//! Archives that are no layers: what somebody wants unpacked into an image.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use crate::{
    Limits,
    archive::{Archive, ArchiveError, Kind, Sparse},
    compression::{self, FileDecoder},
};

/// How a file that is compressed in a way that is not known here begins.
const UNKNOWN: [(&[u8], &str); 2] = [(b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2")];

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// An archive, compressed or not.
    Archive,
    /// Something that is compressed like this, which cannot be looked into.
    Unknown(&'static str),
    /// Any other file.
    None,
}

/// An archive, entry by entry.
#[derive(Debug)]
pub struct Parcel {
    archive: Archive<BufReader<Bounded>>,
    limits: Limits,
    entries: u64,
    /// The holes of the entry at hand.
    sparse: Option<Sparse>,
}

/// An entry without its content. Its path is below wherever the archive is unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Empty for the directory that it is unpacked to.
    pub path: PathBuf,
    pub what: Contained,
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub modified: i64,
    pub extended: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contained {
    File { size: u64 },
    Directory,
    Symlink(Vec<u8>),
    Link(PathBuf),
    Fifo,
    Device,
}

#[derive(Debug, thiserror::Error)]
pub enum ParcelError {
    /// Whoever made the archive has to make another one.
    #[error("the archive is refused: {0}")]
    Refused(String),
    #[error("cannot read the archive")]
    Io(#[source] io::Error),
}

impl From<ArchiveError> for ParcelError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Malformed(why) => Self::Refused(why.to_owned()),
            ArchiveError::Io(error) if error.raw_os_error().is_some() => Self::Io(error),
            ArchiveError::Io(error) => Self::Refused(error.to_string()),
        }
    }
}

impl Parcel {
    /// What a file is, by its first bytes.
    pub fn detect(file: &mut File) -> io::Result<Packing> {
        file.seek(SeekFrom::Start(0))?;
        let mut first = Vec::new();
        Read::by_ref(file).take(6).read_to_end(&mut first)?;
        if let Some((_, name)) = UNKNOWN.iter().find(|(begin, _)| first.starts_with(begin)) {
            return Ok(Packing::Unknown(name));
        }
        let limits = Limits { unproven: 64 << 20, ..Limits::default() };
        let found = Self::open(file.try_clone()?, limits)?.archive.next();
        file.seek(SeekFrom::Start(0))?;
        Ok(if matches!(found, Ok(Some(_))) { Packing::Archive } else { Packing::None })
    }

    pub fn open(file: File, limits: Limits) -> io::Result<Self> {
        let bounded = Bounded { decoder: compression::open(file)?, bytes: 0, limits };
        let archive = Archive::new(BufReader::with_capacity(64 << 10, bounded));
        Ok(Self { archive, limits, entries: 0, sparse: None })
    }

    /// The next entry.
    pub fn piece(&mut self) -> Result<Option<Piece>, ParcelError> {
        let Some(entry) = self.archive.next()? else { return Ok(None) };
        self.entries += 1;
        if self.entries > self.limits.entries {
            let most = self.limits.entries;
            return Err(ParcelError::Refused(format!("it has more than {most} entries")));
        }
        let path = self.below(&entry.path)?;
        let size = entry.sparse.as_ref().map_or(entry.size, |sparse| sparse.length);
        if size > self.limits.layer {
            let most = self.limits.layer;
            return Err(ParcelError::Refused(format!("a file has more than {most} bytes")));
        }
        let what = match entry.kind {
            Kind::File => Contained::File { size },
            Kind::Directory => Contained::Directory,
            Kind::Symlink => Contained::Symlink(entry.link),
            Kind::HardLink => Contained::Link(self.below(&entry.link)?),
            Kind::Fifo => Contained::Fifo,
            Kind::Device => Contained::Device,
        };
        self.sparse = entry.sparse;
        let extended = entry.extended.into_iter();
        let is_kept = |name: &[u8]| name == b"security.capability" || name.starts_with(b"user.");
        Ok(Some(Piece {
            path,
            what,
            mode: entry.mode & 0o7777,
            user: entry.user.unwrap_or_default(),
            group: entry.group.unwrap_or_default(),
            modified: entry.modified.seconds,
            extended: extended.filter(|(name, _)| is_kept(name)).collect(),
        }))
    }

    /// The content of the file that came last.
    pub fn content(&mut self) -> impl Read {
        let sparse = self.sparse.take();
        let (length, parts) = match sparse {
            Some(Sparse { length, parts }) => (length, parts),
            None => (u64::MAX, vec![(0, u64::MAX)]),
        };
        Content { archive: &mut self.archive, parts: parts.into_iter().collect(), at: 0, length }
    }

    /// A path without anything that leads out of a directory.
    fn below(&self, path: &[u8]) -> Result<PathBuf, ParcelError> {
        if path.len() > self.limits.path || path.contains(&0) {
            return Err(ParcelError::Refused("a path in it is too long or has a zero byte".into()));
        }
        let mut below = PathBuf::new();
        for part in Path::new(OsStr::from_bytes(path)).components() {
            match part {
                Component::Normal(name) => below.push(name),
                Component::ParentDir => {
                    return Err(ParcelError::Refused(format!(
                        "{} leads out of the directory that it is unpacked to",
                        String::from_utf8_lossy(path)
                    )));
                }
                Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
            }
        }
        if below.iter().count() > self.limits.depth {
            let deepest = self.limits.depth;
            return Err(ParcelError::Refused(format!("directories lie more than {deepest} deep")));
        }
        Ok(below)
    }
}

/// What comes out of a file, as long as it is not out of all proportion.
struct Bounded {
    decoder: FileDecoder,
    bytes: u64,
    limits: Limits,
}

impl std::fmt::Debug for Bounded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bounded").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.bytes += count as u64;
        let compressed = self.decoder.input().get_ref().bytes;
        let Limits { layer, unproven, ratio, .. } = self.limits;
        if self.bytes > layer || (self.bytes > unproven && self.bytes / ratio.max(1) > compressed) {
            return Err(io::Error::other("it unpacks to more than an archive may"));
        }
        Ok(count)
    }
}

/// The content of a file, with zeros where it has holes.
struct Content<'a> {
    archive: &'a mut Archive<BufReader<Bounded>>,
    /// What the archive has of it, as offset and length.
    parts: std::collections::VecDeque<(u64, u64)>,
    at: u64,
    length: u64,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.parts.front().is_some_and(|(offset, length)| {
            offset.checked_add(*length).is_some_and(|end| end <= self.at)
        }) {
            self.parts.pop_front();
        }
        let is_part = self.parts.front().is_some_and(|(offset, _)| *offset <= self.at);
        let end = match self.parts.front() {
            Some((offset, length)) if is_part => offset.saturating_add(*length),
            Some((offset, _)) => *offset,
            None => self.length,
        };
        let most = usize::try_from(end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        let Some(into) = buffer.get_mut(..most) else { return Ok(0) };
        if !is_part {
            into.fill(0);
            self.at += most as u64;
            return Ok(most);
        }
        let chunk = self.archive.chunk().map_err(io::Error::other)?;
        let count = chunk.len().min(most);
        for (to, from) in into.iter_mut().zip(chunk) {
            *to = *from;
        }
        self.archive.consume(count);
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::{
        archive::Packed,
        trial::{Tar, blob, record},
    };

    fn open(archive: &[u8]) -> Parcel {
        Parcel::open(blob(archive), Limits::default()).unwrap()
    }

    #[test]
    fn entries_come_one_after_another() {
        let tar = Tar::new().directory("./a/", 0o700).file("./a/b", "hello").symlink("c", "../d");
        let mut parcel = open(&tar.hard_link("e", "./a/b").end());
        let found = parcel.piece().unwrap().unwrap();
        assert_eq!(
            (found.path.as_path(), found.what, found.mode),
            (Path::new("a"), Contained::Directory, 0o700)
        );
        assert_eq!(parcel.piece().unwrap().unwrap().what, Contained::File { size: 5 });
        assert_eq!(io::read_to_string(parcel.content()).unwrap(), "hello");
        assert_eq!(parcel.piece().unwrap().unwrap().what, Contained::Symlink(b"../d".to_vec()));
        assert_eq!(parcel.piece().unwrap().unwrap().what, Contained::Link("a/b".into()));
        assert_eq!(parcel.piece().unwrap(), None);
    }

    #[test]
    fn holes_are_filled() {
        let mut described = record("GNU.sparse.major", b"0");
        described.extend(record("GNU.sparse.size", b"10"));
        described.extend(record("GNU.sparse.map", b"2,3,7,1"));
        let packed = Packed::new(b'0', b"holes", 4).described(b'x', &described);
        let mut parcel = open(&Tar::new().entry(packed, b"abcd").end());
        assert_eq!(parcel.piece().unwrap().unwrap().what, Contained::File { size: 10 });
        let mut content = Vec::new();
        parcel.content().read_to_end(&mut content).unwrap();
        assert_eq!(content, b"\0\0abc\0\0d\0\0");
    }

    #[test]
    fn what_leads_out_and_what_explodes_is_refused() {
        for path in ["../x", "a/../../x", "a/.."] {
            assert!(open(&Tar::new().file(path, "").end()).piece().is_err(), "{path}");
        }
        assert_eq!(
            open(&Tar::new().file("/x", "").end()).piece().unwrap().unwrap().path,
            Path::new("x")
        );
        let link = Tar::new().hard_link("x", "../../etc/passwd").end();
        assert!(open(&link).piece().is_err());
        let zeros = Tar::new().file("zeros", &"\0".repeat(8 << 20)).end();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(&zeros).unwrap();
        let limits = Limits { unproven: 1 << 20, ..Limits::default() };
        let mut parcel = Parcel::open(blob(&packed.finish().unwrap()), limits).unwrap();
        parcel.piece().unwrap();
        assert!(io::copy(&mut parcel.content(), &mut io::sink()).is_err());
    }

    #[test]
    fn archives_are_known_by_their_content() {
        let tar = Tar::new().file("x", "y").end();
        let zstd = zstd::encode_all(&tar[..], 1).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&tar).unwrap();
        let gzip = gzip.finish().unwrap();
        let of = |content: &[u8]| Parcel::detect(&mut blob(content)).unwrap();
        for archive in [&tar, &zstd, &gzip] {
            assert_eq!(of(archive), Packing::Archive);
        }
        let mut plain = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        plain.write_all(b"not an archive").unwrap();
        for other in [&b""[..], b"text", &plain.finish().unwrap(), &[0; 4096]] {
            assert_eq!(of(other), Packing::None);
        }
        assert_eq!(of(b"\xfd7zXZ\0rest"), Packing::Unknown("xz"));
    }
}
