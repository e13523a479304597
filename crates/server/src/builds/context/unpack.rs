//! Unpacking somebody's archive: names are followed one by one from an open directory, and never a
//! link.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

use osb_core::Chain;
use osb_image::{Contained, Parcel, ParcelError, Piece};
use osb_sys::sparse;
use rustix::{
    fs::{
        AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, fchmod, futimens, linkat, mkdirat,
        openat, symlinkat, utimensat,
    },
    io::Errno,
};

use crate::error::ApiError;

/// Unpacks what is below `below` into a directory, at most `most` bytes of it. All else is refused.
pub(super) fn unpack(
    parcel: &mut Parcel,
    below: &str,
    directory: &Path,
    most: u64,
) -> Result<(), ApiError> {
    let root = open(CWD, directory).map_err(|error| ApiError::internal(io::Error::from(error)))?;
    let mut unpacking = Unpacking { root, near: None, made: HashSet::new(), left: most };
    while let Some(piece) = parcel.piece().map_err(refused)? {
        let Ok(path) = piece.path.strip_prefix(below) else {
            return Err(wrong(&piece.path, &format!("is not below {below}/")));
        };
        let path = path.to_owned();
        unpacking.put(parcel, &piece, &path).map_err(|fault| match fault {
            Fault::Refused(why) => wrong(&piece.path, &why),
            Fault::Disk(error) => ApiError::internal(error),
        })?;
    }
    Ok(())
}

fn refused(error: ParcelError) -> ApiError {
    match error {
        ParcelError::Refused(_) => ApiError::invalid(error.to_string()),
        ParcelError::Io(error) => ApiError::internal(error),
    }
}

fn wrong(path: &Path, why: &str) -> ApiError {
    let shown: String = path.display().to_string().chars().take(256).collect();
    ApiError::invalid(format!("{shown:?} in the archive {why}"))
}

enum Fault {
    Refused(String),
    Disk(io::Error),
}

impl From<Errno> for Fault {
    fn from(error: Errno) -> Self {
        let why = match error {
            Errno::EXIST => "comes twice",
            Errno::LOOP | Errno::NOTDIR => "lies in something that is no directory",
            Errno::NAMETOOLONG => "has a name that is too long",
            Errno::NOENT => "leads to what is not there",
            Errno::MLINK => "has too many names",
            error => return Self::Disk(error.into()),
        };
        Self::Refused(why.to_owned())
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(error) => error.into(),
            // The archive itself says so.
            None => Self::Refused(format!("is wrong: {}", Chain(&error))),
        }
    }
}

struct Unpacking {
    root: OwnedFd,
    /// The directory that was used last.
    near: Option<(PathBuf, OwnedFd)>,
    /// Directories that had an entry.
    made: HashSet<PathBuf>,
    left: u64,
}

impl Unpacking {
    fn put(&mut self, parcel: &mut Parcel, piece: &Piece, path: &Path) -> Result<(), Fault> {
        let Some(name) = path.file_name() else {
            return match piece.what {
                Contained::Directory => Ok(fchmod(&self.root, mode(piece))?),
                Contained::File { .. }
                | Contained::Symlink(_)
                | Contained::Link(_)
                | Contained::Fifo
                | Contained::Device => Err(Fault::Refused("is no directory".to_owned())),
            };
        };
        let around = self.enter(path.parent().unwrap_or_else(|| Path::new("")))?;
        match &piece.what {
            Contained::Directory => {
                let is_new = self.made.insert(path.to_owned());
                match mkdirat(&around, name, Mode::RWXU) {
                    Ok(()) => {}
                    // Something in it came before it.
                    Err(Errno::EXIST) if is_new => {}
                    Err(error) => return Err(error.into()),
                }
                let made = open(&around, name)?;
                Ok(fchmod(&made, mode(piece) | Mode::RWXU)?)
            }
            Contained::File { size } => {
                self.left = self.left.checked_sub(*size).ok_or_else(|| {
                    Fault::Refused("is more than a build may have in its directory".to_owned())
                })?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let file = openat(&around, name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
                let file = File::from(file);
                let mut writer = sparse::Writer::new(&file);
                let count = io::copy(&mut parcel.content().take(*size), &mut writer)?;
                writer.flush()?;
                if count != *size {
                    return Err(Fault::Refused("ends in the middle".to_owned()));
                }
                fchmod(&file, mode(piece))?;
                Ok(futimens(&file, &times(piece))?)
            }
            Contained::Symlink(to) => {
                symlinkat(OsStr::from_bytes(to), &around, name)?;
                Ok(utimensat(&around, name, &times(piece), AtFlags::SYMLINK_NOFOLLOW)?)
            }
            Contained::Link(to) => {
                let Some(other) =
                    to.strip_prefix(super::CONTEXT).ok().filter(|to| to.file_name().is_some())
                else {
                    return Err(Fault::Refused(
                        "is a link to what is not in the archive".to_owned(),
                    ));
                };
                let from = self.enter(other.parent().unwrap_or_else(|| Path::new("")))?;
                let name_there = other.file_name().unwrap_or_default();
                Ok(linkat(&from, name_there, &around, name, AtFlags::empty())?)
            }
            Contained::Fifo | Contained::Device => {
                Err(Fault::Refused("is neither a file nor a directory nor a link".to_owned()))
            }
        }
    }

    /// The directory at a path, made if it is missing.
    fn enter(&mut self, path: &Path) -> Result<OwnedFd, Fault> {
        if let Some((near, directory)) = &self.near
            && near == path
        {
            return Ok(directory.try_clone()?);
        }
        let mut here = self.root.try_clone()?;
        for name in path {
            here = match open(&here, name) {
                Err(Errno::NOENT) => {
                    mkdirat(&here, name, Mode::from_raw_mode(0o755))?;
                    open(&here, name)?
                }
                result => result?,
            };
        }
        self.near = Some((path.to_owned(), here.try_clone()?));
        Ok(here)
    }
}

fn open(at: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

fn mode(piece: &Piece) -> Mode {
    Mode::from_raw_mode(piece.mode)
}

fn times(piece: &Piece) -> Timestamps {
    let at = Timespec { tv_sec: piece.modified, tv_nsec: 0 };
    Timestamps { last_access: at, last_modification: at }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, os::unix::fs::MetadataExt as _};

    use osb_image::{Entry, Limits, Tarball, What};

    use super::*;

    #[test]
    fn a_file_of_zeros_takes_no_room() {
        const SIZE: u64 = 64 << 20;
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let archive = tempfile::tempfile_in("/var/tmp").unwrap();
        let mut tarball = Tarball::new(&archive);
        let (path, what) = (Path::new("context/zeros"), What::File { size: SIZE });
        let (mode, modified, extended) = (0o644, 1, &BTreeMap::new());
        let entry = Entry { path, what, mode, user: 0, group: 0, modified, extended };
        tarball.add(&entry, io::repeat(0).take(SIZE)).unwrap();
        tarball.finish().unwrap();
        let mut parcel = Parcel::open(archive, Limits::default()).unwrap();
        unpack(&mut parcel, "context", directory.path(), SIZE).unwrap();
        let metadata = directory.path().join("zeros").metadata().unwrap();
        assert_eq!((metadata.len(), metadata.mtime()), (SIZE, 1));
        assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
    }
}
