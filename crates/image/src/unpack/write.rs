//! What becomes of the entries of a layer.

use std::{io::BufRead, path::Path};

use osb_sys::unpack::{Attributes, Foundation, NewFile, Tree, UnpackError as Failure};

use super::{UnpackError, Unpacker};
use crate::archive::{Archive, ArchiveError, Entry, Kind, Sparse};

/// How a name says that another one is gone.
const WHITEOUT: &[u8] = b".wh.";
/// What the first file system that had such marks left in archives.
const LEFTOVER: &[u8] = b".wh..wh.";
/// That nothing of a directory shines through.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Writes the entries of an archive, and answers with how much content they have.
pub(crate) fn write(
    unpacker: Unpacker<'_>,
    input: impl BufRead,
    around: &Path,
    foundation: Foundation,
) -> Result<u64, UnpackError> {
    let (tree, bytes) = write_entries(unpacker, input, around, Some(foundation))?;
    finish(tree)?;
    Ok(bytes)
}

/// Writes what is left when all entries are.
pub(super) fn finish(tree: Tree) -> Result<(), UnpackError> {
    tree.finish().map_err(|failure| Fault::from(failure).of("."))
}

/// The same without an end, which may be all that needs the layers below.
pub(super) fn write_entries(
    unpacker: Unpacker<'_>,
    input: impl BufRead,
    around: &Path,
    foundation: Option<Foundation>,
) -> Result<(Tree, u64), UnpackError> {
    let disk = |source| UnpackError::Disk { entry: ".".to_owned(), source };
    let tree = Tree::begin(around, foundation, unpacker.owners, unpacker.rights).map_err(disk)?;
    let mut writer = Writer { unpacker, archive: Archive::new(input), tree, bytes: 0, entries: 0 };
    let mut last = String::new();
    loop {
        let entry = writer.archive.next().map_err(|error| match error {
            ArchiveError::Malformed(why) if last.is_empty() => UnpackError::Layer(why.to_owned()),
            ArchiveError::Malformed(why) => UnpackError::Layer(format!("after {last:?}, {why}")),
            ArchiveError::Io(source) => UnpackError::Disk { entry: last.clone(), source },
        })?;
        let Some(entry) = entry else { break };
        last = shown(&entry.path);
        writer.entry(&entry).map_err(|fault| fault.of(&last))?;
    }
    let Writer { tree, bytes, .. } = writer;
    Ok((tree, bytes))
}

struct Writer<'a, R> {
    unpacker: Unpacker<'a>,
    archive: Archive<R>,
    tree: Tree,
    bytes: u64,
    entries: u64,
}

impl<R: BufRead> Writer<'_, R> {
    fn entry(&mut self, entry: &Entry) -> Result<(), Fault> {
        let limits = self.unpacker.limits;
        self.entries += 1;
        if self.entries > limits.entries {
            return Err(Fault::Limit(format!("there are more than {} entries", limits.entries)));
        }
        for path in [&entry.path, &entry.link] {
            if path.len() > limits.path {
                let longest = limits.path;
                return Err(Fault::Limit(format!("its path is longer than {longest} bytes")));
            }
            if path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).count()
                > limits.depth
            {
                let deepest = limits.depth;
                return Err(Fault::Limit(format!("it is more than {deepest} directories deep")));
            }
        }
        match Meaning::of(&entry.path)? {
            Meaning::Leftover => Ok(()),
            Meaning::Opaque(directory) => Ok(self.tree.opaque(directory)?),
            Meaning::Gone(path) => Ok(self.tree.whiteout(&path)?),
            Meaning::Itself => self.make(entry),
        }
    }

    fn make(&mut self, entry: &Entry) -> Result<(), Fault> {
        let path = &entry.path;
        let mut attributes = Attributes::new(entry.user, entry.group, entry.mode, entry.modified);
        for (name, value) in &entry.extended {
            attributes.extend(name, value);
        }
        match entry.kind {
            Kind::Directory => self.tree.directory(path, attributes)?,
            Kind::Symlink => self.tree.symlink(path, &entry.link, &attributes)?,
            Kind::Fifo => self.tree.fifo(path, &attributes)?,
            // No sandbox could use one: its root is mounted so that there are none.
            Kind::Device => self.tree.absent(path)?,
            Kind::HardLink => {
                let copied = self.tree.hard_link(path, &entry.link)?;
                self.count(copied)?;
            }
            Kind::File => {
                let mut file = self.tree.file(path, attributes)?;
                match &entry.sparse {
                    None => self.content(&mut file)?,
                    Some(sparse) => self.parts(&mut file, sparse)?,
                }
                file.finish()?;
                self.count(entry.size)?;
            }
        }
        Ok(())
    }

    fn content(&mut self, file: &mut NewFile) -> Result<(), Fault> {
        loop {
            let chunk = self.archive.chunk()?;
            if chunk.is_empty() {
                return Ok(());
            }
            file.write(chunk).map_err(Failure::from)?;
            let count = chunk.len();
            self.archive.consume(count);
        }
    }

    fn parts(&mut self, file: &mut NewFile, sparse: &Sparse) -> Result<(), Fault> {
        file.set_length(sparse.length)?;
        for (offset, length) in &sparse.parts {
            let (mut at, mut left) = (*offset, *length);
            while left > 0 {
                let chunk = self.archive.chunk()?;
                let most = usize::try_from(left).unwrap_or(usize::MAX);
                let chunk = chunk.get(..most).unwrap_or(chunk);
                file.write_at(chunk, at).map_err(Failure::from)?;
                let count = chunk.len();
                self.archive.consume(count);
                at += count as u64;
                left -= count as u64;
            }
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) -> Result<(), Fault> {
        let most = self.unpacker.limits.layer;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > most {
            return Err(Fault::Limit(format!("it unpacks to more than {most} bytes")));
        }
        Ok(())
    }
}

/// What the name of an entry means.
enum Meaning<'a> {
    Itself,
    Leftover,
    /// Nothing of this directory shines through.
    Opaque(&'a [u8]),
    /// This is gone.
    Gone(Vec<u8>),
}

impl<'a> Meaning<'a> {
    fn of(path: &'a [u8]) -> Result<Self, Fault> {
        let trimmed = without_slashes(path);
        let (directory, name) = match trimmed.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => trimmed.split_at(slash + 1),
            None => trimmed.split_at(0),
        };
        let is_marked = |part: &[u8]| part.starts_with(WHITEOUT);
        if path.split(|byte| *byte == b'/').any(|part| part.starts_with(LEFTOVER)) {
            return Ok(match name {
                OPAQUE if !directory.split(|byte| *byte == b'/').any(is_marked) => {
                    Self::Opaque(directory)
                }
                _ => Self::Leftover,
            });
        }
        if directory.split(|byte| *byte == b'/').any(is_marked) {
            return Err(Fault::Refused("it lies in something that is said to be gone".to_owned()));
        }
        match name.strip_prefix(WHITEOUT) {
            None => Ok(Self::Itself),
            Some(b"" | b"." | b"..") => {
                Err(Fault::Refused("it says that something without a name is gone".to_owned()))
            }
            Some(gone) => Ok(Self::Gone([directory, gone].concat())),
        }
    }
}

fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    path.get(..end).unwrap_or_default()
}

/// What is wrong with an entry.
enum Fault {
    Refused(String),
    Limit(String),
    Early,
    Disk(std::io::Error),
}

impl Fault {
    fn of(self, entry: &str) -> UnpackError {
        let entry = entry.to_owned();
        match self {
            Self::Refused(why) => UnpackError::Entry { entry, why },
            Self::Limit(why) => UnpackError::Limit(format!("{why} (at {entry:?})")),
            Self::Early => UnpackError::Early,
            Self::Disk(source) => UnpackError::Disk { entry, source },
        }
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(why) => Self::Refused(why.to_owned()),
            Failure::Early => Self::Early,
            Failure::Io(error) => Self::Disk(error),
        }
    }
}

impl From<ArchiveError> for Fault {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Malformed(why) => Self::Refused(why.to_owned()),
            ArchiveError::Io(error) => Self::Disk(error),
        }
    }
}

/// A name for people, which somebody else has made up.
fn shown(path: &[u8]) -> String {
    let mut text: String = String::from_utf8_lossy(path).chars().take(256).collect();
    if text.is_empty() {
        text.push('.');
    }
    text
}
