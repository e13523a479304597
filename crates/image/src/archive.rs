//! Tar archives as somebody hostile writes them: what their entries say, with bounded memory.
//!
//! It reads what GNU tar, pax and the programs that make images write, and takes it as the latter do:
//! of two names the one that they use is used, so that no file is another one here than elsewhere.

mod header;
mod packed;
mod pax;
mod sparse;

use std::io::{self, BufRead, ErrorKind};

use osb_sys::unpack::Moment;

use self::header::{BLOCK, Header};
pub(crate) use self::{
    packed::{END, Packed, padding},
    sparse::Sparse,
};

/// The longest description of one entry, its names and attributes taken together.
const LONGEST_DESCRIPTION: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("{0}")]
    Malformed(&'static str),
    #[error("the archive cannot be read")]
    Io(#[source] io::Error),
}

impl From<io::Error> for ArchiveError {
    fn from(error: io::Error) -> Self {
        if error.kind() == ErrorKind::UnexpectedEof {
            Self::Malformed("the archive ends in the middle")
        } else {
            Self::Io(error)
        }
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    Directory,
    Fifo,
    Device,
}

/// An entry without its content. Ids that are no ids of Linux are absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    /// What a link leads to.
    pub(crate) link: Vec<u8>,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) mode: u32,
    pub(crate) modified: Moment,
    pub(crate) extended: Vec<(Vec<u8>, Vec<u8>)>,
    /// How much content there is in the archive.
    pub(crate) size: u64,
    /// Where that content belongs, if it is not all of the file.
    pub(crate) sparse: Option<Sparse>,
}

/// The entries of an archive, one after another.
#[derive(Debug)]
pub(crate) struct Archive<R> {
    input: R,
    /// What is left of the content of the entry, and what fills up its last block.
    left: u64,
    padding: u64,
    ended: bool,
}

impl<R: BufRead> Archive<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, left: 0, padding: 0, ended: false }
    }

    /// The next entry, whether or not the content of the last one was read.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        let mut described = pax::Records::default();
        let (mut long_name, mut long_link) = (None, None);
        loop {
            self.skip_content()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let size = header.size()?;
            match header.kind() {
                b'x' => described = pax::Records::parse(&self.description(size)?)?,
                // It is about all entries that follow, and nobody who reads images heeds it.
                b'g' => drop(self.description(size)?),
                b'L' => long_name = Some(until_zero(self.description(size)?)),
                b'K' => long_link = Some(until_zero(self.description(size)?)),
                _ => {
                    let mut entry = header.entry()?;
                    let told = described.apply(&mut entry)?;
                    if let Some(name) = long_name {
                        entry.path = name;
                    }
                    if let Some(link) = long_link {
                        entry.link = link;
                    }
                    if entry.kind == Kind::File && entry.path.last() == Some(&b'/') {
                        entry.kind = Kind::Directory;
                    }
                    // Whatever else says how long it is has no content all the same.
                    if entry.kind != Kind::File {
                        entry.size = 0;
                    }
                    self.expect(entry.size);
                    entry.sparse = self.sparse(&header, &mut entry, told)?;
                    return Ok(Some(entry));
                }
            }
        }
    }

    /// What the archive is read from, at the place after its last entry.
    pub(crate) fn into_input(self) -> R {
        self.input
    }

    /// The next part of the entry's content; nothing at its end.
    pub(crate) fn chunk(&mut self) -> Result<&[u8], ArchiveError> {
        if self.left == 0 {
            return Ok(&[]);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let available = self.input.fill_buf()?;
        if available.is_empty() {
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        Ok(available.get(..most).unwrap_or(available))
    }

    /// Says how much of that part was taken.
    pub(crate) fn consume(&mut self, count: usize) {
        self.input.consume(count);
        self.left = self.left.saturating_sub(count as u64);
    }

    /// All of the entry's content, if it is not longer than `limit`.
    pub(crate) fn content(&mut self, limit: u64) -> Result<Vec<u8>, ArchiveError> {
        if self.left > limit {
            return Err(ArchiveError::Malformed("it is longer than such a file may be"));
        }
        let mut content = Vec::new();
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(content);
            }
            content.extend_from_slice(chunk);
            let count = chunk.len();
            self.consume(count);
        }
    }

    fn expect(&mut self, size: u64) {
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    fn description(&mut self, size: u64) -> Result<Vec<u8>, ArchiveError> {
        if size > LONGEST_DESCRIPTION {
            return Err(ArchiveError::Malformed("an entry is described at too great length"));
        }
        self.expect(size);
        self.content(LONGEST_DESCRIPTION)
    }

    /// Passes over what is left of an entry.
    fn skip_content(&mut self) -> Result<(), ArchiveError> {
        self.left += std::mem::take(&mut self.padding);
        loop {
            let count = self.chunk()?.len();
            if count == 0 {
                return Ok(());
            }
            self.consume(count);
        }
    }

    fn header(&mut self) -> Result<Option<Header>, ArchiveError> {
        if self.ended {
            return Ok(None);
        }
        let Some(block) = self.block()? else { return Ok(None) };
        if block != [0; BLOCK] {
            return Header::parse(&block).map(Some);
        }
        self.ended = true;
        match self.block()? {
            None => Ok(None),
            Some(block) if block == [0; BLOCK] => Ok(None),
            Some(_) => Err(ArchiveError::Malformed("the archive goes on after its end")),
        }
    }

    /// The next block, unless the archive ends before it.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, ArchiveError> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut block = [0; BLOCK];
        self.input.read_exact(&mut block)?;
        Ok(Some(block))
    }

    /// A block of the entry's content that belongs to its description.
    fn content_block(&mut self) -> Result<[u8; BLOCK], ArchiveError> {
        let mut block = [0; BLOCK];
        self.left = self.left.checked_sub(BLOCK as u64).ok_or_else(sparse::malformed)?;
        self.input.read_exact(&mut block)?;
        Ok(block)
    }
}

fn until_zero(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

#[cfg(test)]
mod tests;
