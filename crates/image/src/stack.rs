//! Layers that are stacked on each other, seen as the one tree that they are, without a mount.
//!
//! Everything in them is somebody else's: each step is one name from an open directory, links are read
//! and never followed by the kernel, and nothing but ordinary files and directories is opened.

mod find;
mod look;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use osb_sys::{fs::PathError, rootless::Rights, userns::IdBase};
use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, openat, readlinkat},
    io::Errno,
};

pub use self::{
    find::{Follow, Found},
    look::{Kind, Seen},
};

/// How many names one directory may have.
const MOST_NAMES: usize = 1 << 20;

/// Layers, topmost first.
#[derive(Debug)]
pub struct Stack {
    layers: Vec<OwnedFd>,
    marks: Marks,
    owners: IdBase,
}

/// How a layer says that something of the layers below is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marks {
    /// It does not: it is not a layer but a directory as any other.
    None,
    Overlay(Rights),
}

impl Stack {
    /// Opens layers, topmost first, as sandboxes stand on them. Owners are counted from `owners`.
    pub fn open<P: AsRef<Path>>(
        layers: impl IntoIterator<Item = P>,
        owners: IdBase,
        rights: Rights,
    ) -> Result<Self, PathError> {
        let layers =
            layers.into_iter().map(|path| open_top(path.as_ref())).collect::<Result<_, _>>();
        Ok(Self { layers: layers?, marks: Marks::Overlay(rights), owners })
    }

    /// A layer that is open already. Owners are counted from `owners`.
    pub fn of(layer: OwnedFd, owners: IdBase, rights: Rights) -> Self {
        Self { layers: vec![layer], marks: Marks::Overlay(rights), owners }
    }

    /// Opens a directory that is no layer; everything in it is what it seems to be.
    pub fn plain(directory: &Path) -> Result<Self, PathError> {
        let layers = vec![open_top(directory)?];
        Ok(Self { layers, marks: Marks::None, owners: IdBase(0) })
    }

    /// The directory at the top.
    pub fn root(&self) -> io::Result<Directory> {
        let layers = self.layers.iter().map(OwnedFd::try_clone).collect::<Result<_, _>>()?;
        Ok(Directory { parts: layers, marks: self.marks, owners: self.owners })
    }
}

/// A directory of a stack, as it is in each layer that has a part of it, topmost first. Without any
/// part it is empty.
#[derive(Debug)]
pub struct Directory {
    parts: Vec<OwnedFd>,
    marks: Marks,
    owners: IdBase,
}

/// Something with a name in a directory.
struct Place<'a> {
    /// In which part it is.
    part: &'a OwnedFd,
    seen: Seen,
}

impl Directory {
    /// What is under this name.
    pub fn look(&self, name: &OsStr) -> io::Result<Option<Seen>> {
        Ok(self.place(name)?.map(|place| place.seen))
    }

    /// All that is in it.
    pub fn names(&self) -> io::Result<BTreeMap<OsString, Seen>> {
        let mut found: BTreeMap<OsString, Option<Seen>> = BTreeMap::new();
        for part in &self.parts {
            for entry in Dir::read_from(part)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                // What is above has hidden it, or is it.
                if name == "." || name == ".." || found.contains_key(name) {
                    continue;
                }
                if found.len() >= MOST_NAMES {
                    return Err(io::Error::other("a directory has too many names"));
                }
                let Some(seen) = look::look(part, name, self.owners)? else { continue };
                let is_gone = self.marks != Marks::None && seen.is_whiteout();
                found.insert(name.to_owned(), (!is_gone).then_some(seen));
            }
        }
        Ok(found.into_iter().filter_map(|(name, seen)| Some((name, seen?))).collect())
    }

    /// The directory under this name.
    pub fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let mut parts = Vec::new();
        for part in &self.parts {
            let Some(seen) = look::look(part, name, self.owners)? else { continue };
            if seen.kind != Kind::Directory {
                // A whiteout, or a file: nothing further down is seen.
                break;
            }
            let opened = open_directory(part, name)?;
            let is_opaque = match self.marks {
                Marks::None => false,
                Marks::Overlay(rights) => look::is_opaque(&opened, rights)?,
            };
            parts.push(opened);
            if is_opaque {
                break;
            }
        }
        if parts.is_empty() {
            return Err(Errno::NOTDIR.into());
        }
        Ok(Self { parts, marks: self.marks, owners: self.owners })
    }

    /// The ordinary file under this name.
    pub fn open(&self, name: &OsStr) -> io::Result<File> {
        let place = self.place(name)?.ok_or(Errno::NOENT)?;
        // A pipe that took its place would keep a reader waiting.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(place.part, name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no ordinary file"));
        }
        Ok(file)
    }

    /// What the link under this name says.
    pub fn read_link(&self, name: &OsStr) -> io::Result<Vec<u8>> {
        let place = self.place(name)?.ok_or(Errno::NOENT)?;
        Ok(readlinkat(place.part, name, Vec::new())?.into_bytes())
    }

    /// Those extended attributes of a file or directory under this name that belong into an image.
    pub fn extended(&self, name: &OsStr) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let place = self.place(name)?.ok_or(Errno::NOENT)?;
        if !matches!(place.seen.kind, Kind::File | Kind::Directory) || self.marks == Marks::None {
            return Ok(BTreeMap::new());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        look::extended(&openat(place.part, name, flags, Mode::empty())?, self.owners)
    }

    /// The directory itself. `None` if no layer has it.
    pub fn itself(&self) -> io::Result<Option<Seen>> {
        let Some(top) = self.parts.first() else { return Ok(None) };
        Ok(Some(Seen::of(&rustix::fs::fstat(top)?, self.owners)))
    }

    /// Whether the topmost layer says that nothing further down shines through.
    pub(crate) fn is_opaque(&self) -> io::Result<bool> {
        match (self.marks, self.parts.first()) {
            (Marks::Overlay(rights), Some(top)) => look::is_opaque(top, rights),
            _ => Ok(false),
        }
    }

    /// What is in the topmost layer, with its marks.
    pub(crate) fn raw_names(&self) -> io::Result<BTreeMap<OsString, Seen>> {
        let top = Self {
            parts: self.parts.first().map(OwnedFd::try_clone).transpose()?.into_iter().collect(),
            marks: Marks::None,
            owners: self.owners,
        };
        top.names()
    }

    fn place(&self, name: &OsStr) -> io::Result<Option<Place<'_>>> {
        for part in &self.parts {
            if let Some(seen) = look::look(part, name, self.owners)? {
                let is_gone = self.marks != Marks::None && seen.is_whiteout();
                return Ok((!is_gone).then_some(Place { part, seen }));
            }
        }
        Ok(None)
    }
}

fn open_top(path: &Path) -> Result<OwnedFd, PathError> {
    open_directory(CWD, path).map_err(|error| PathError::new("open", path, error.into()))
}

fn open_directory(at: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

fn kind_of(mode: u32, device: u64) -> Kind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice if device == 0 => Kind::Whiteout,
        FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => Kind::Device,
    }
}

#[cfg(test)]
mod tests;
