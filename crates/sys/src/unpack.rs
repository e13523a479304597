//! Layers made of archives that somebody hostile has packed: entries become files below one
//! directory, whatever their names, their links and their order are.
//!
//! A layer is what an archive changes of the layers below it. Its marks are those of the overlay: a
//! device 0:0 says that a name is gone, and an attribute of a directory that nothing of it shines
//! through. Marks are written last, and only where something is below that they hide, for the
//! overlay shows them where a directory is in one layer alone.
//!
//! Names are resolved as a process would whose root is the layer stacked on those below: a link on the way
//! is followed, and leads nowhere else. Every step is one name from an open directory.

mod attributes;
mod below;
mod directories;
mod entries;
mod finish;
mod resolve;

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, Mode, OFlags, RenameFlags, fchmod, fchown, fremovexattr, openat,
        renameat_with, unlinkat,
    },
    io::Errno,
    process::umask,
    thread::{UnshareFlags, unshare_unsafe},
};

pub(crate) use self::{
    attributes::copy as copy_attributes,
    below::{is_opaque, is_whiteout},
};
pub use self::{
    attributes::{Attributes, Moment},
    entries::NewFile,
};
use self::{
    below::{Below, Found},
    directories::Directories,
};
use crate::{fs, fs::PathError, rootless::Rights, tree, userns::IdBase};

/// Why an entry did not become a file.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The archive is at fault.
    #[error("{0}")]
    Refused(&'static str),
    /// It depends on the layers below, which are not known yet.
    #[error("what the layers below have is not known yet")]
    Early,
    /// The disk is, unless the name is one that no file can have.
    #[error("the file cannot be written")]
    Io(#[source] io::Error),
}

impl From<Errno> for UnpackError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NAMETOOLONG => Self::Refused("a name is longer than file systems take"),
            Errno::NOTDIR => Self::Refused("a file is in the way of a directory"),
            Errno::LOOP => Self::Refused("links on the way lead in a circle"),
            Errno::MLINK => Self::Refused("a file has more names than file systems take"),
            Errno::FBIG => Self::Refused("a file is larger than file systems take"),
            error => Self::Io(error.into()),
        }
    }
}

impl From<io::Error> for UnpackError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(error) => error.into(),
            None => Self::Io(error),
        }
    }
}

/// The layers that a new one is made for, topmost first.
#[derive(Debug)]
pub struct Foundation {
    layers: Vec<OwnedFd>,
}

impl Foundation {
    pub fn open<P: AsRef<Path>>(layers: impl IntoIterator<Item = P>) -> Result<Self, PathError> {
        let open = |path: P| {
            let path = path.as_ref();
            open(CWD, path).map_err(|error| PathError::new("open", path, error.into()))
        };
        layers.into_iter().map(open).collect::<Result<_, _>>().map(|layers| Self { layers })
    }

    pub fn directories(&self) -> impl Iterator<Item = &OwnedFd> {
        self.layers.iter()
    }
}

/// A layer that is being made, in a directory of its own.
#[derive(Debug)]
pub struct Tree {
    /// What was replaced meanwhile.
    replaced: OwnedFd,
    replacements: u64,
    directories: Directories,
    /// Whether the archive says what its root is like.
    describes_root: bool,
    /// Absent until the layers below are known.
    below: Option<Below>,
    owners: IdBase,
    rights: Rights,
    around: PathBuf,
}

impl Tree {
    /// Begins with the directory `files` in `around`, which is empty. Owners are counted from `owners`.
    /// Without a foundation, what depends on it fails with [`UnpackError::Early`].
    ///
    /// From here on this thread has a file creation mask of its own, which takes nothing away: it
    /// should be one that ends with the layer.
    pub fn begin(
        around: &Path,
        foundation: Option<Foundation>,
        owners: IdBase,
        rights: Rights,
    ) -> io::Result<Self> {
        // SAFETY: from here on this thread's working directory and mask are its own. No memory and
        // no descriptor is affected.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        umask(Mode::empty());
        for name in ["files", "replaced"] {
            fs::create_dir(around.join(name), 0o755).map_err(io::Error::other)?;
        }
        let below = foundation.map(|foundation| Below::new(foundation.layers, rights));
        let top = open(CWD, around.join("files"))?;
        inherit_nothing(&top)?;
        Ok(Self {
            directories: Directories::new(top, Attributes::of_nobodys_directory()),
            describes_root: false,
            replaced: open(CWD, around.join("replaced"))?,
            replacements: 0,
            below,
            owners,
            rights,
            around: around.to_owned(),
        })
    }

    /// Says what the layer is made for, once that is known.
    pub fn found(&mut self, foundation: Foundation) {
        self.below = Some(Below::new(foundation.layers, self.rights));
    }

    /// Takes away whatever is in the place of something that is no directory. Answers whether it was
    /// there.
    fn make_room(&mut self, directory: usize, name: &CString) -> Result<bool, UnpackError> {
        let at = self.directories.open(directory)?;
        match unlinkat(at, name, AtFlags::empty()) {
            Ok(()) => return Ok(true),
            Err(Errno::NOENT) => return Ok(false),
            Err(Errno::ISDIR) => {}
            Err(error) => return Err(error.into()),
        }
        self.replacements += 1;
        let aside = self.replacements.to_string();
        renameat_with(at, name, &self.replaced, aside, RenameFlags::NOREPLACE)?;
        self.directories.forget(directory, name);
        Ok(true)
    }

    /// What the layers below have under this name, unless this layer hides it.
    fn below(&self, directory: usize, name: &CString) -> Result<Option<Found>, UnpackError> {
        if self.directories.hides(directory, name) {
            return Ok(None);
        }
        let mut path = self.directories.path(directory);
        path.push(name);
        Ok(self.below.as_ref().ok_or(UnpackError::Early)?.find(&path)?)
    }

    fn remove_replaced(&self) -> Result<(), PathError> {
        tree::remove(&self.around.join("replaced"))
    }
}

/// Makes `directory` one that hands neither its group nor an access list down.
fn inherit_nothing(directory: &OwnedFd) -> Result<(), Errno> {
    let own = (rustix::process::geteuid(), rustix::process::getegid());
    fchown(directory, Some(own.0), Some(own.1))?;
    fchmod(directory, Mode::from_raw_mode(0o755))?;
    match fremovexattr(directory, c"system.posix_acl_default") {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The names that a path consists of.
fn components(path: &[u8]) -> Result<Vec<CString>, UnpackError> {
    let mut names = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(UnpackError::Refused("its path leads upwards")),
            name => names.push(CString::new(name).map_err(|_| {
                UnpackError::Refused("its path has a zero byte, which no file name has")
            })?),
        }
    }
    Ok(names)
}

fn open(at: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

#[cfg(test)]
mod tests;
