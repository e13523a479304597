//! Layers made of what a sandbox wrote: copies of directory trees that somebody hostile has built.
//!
//! What was written belongs to the range of ids of one sandbox and goes with it. A copy has the ids
//! that are seen inside, as the layers of images have, so that any sandbox can stand on it. Without
//! the rights of root all sandboxes have the same ids, and so have all layers.

pub(crate) mod attributes;
pub(crate) mod content;

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, chmodat, chownat, fstat, linkat, mkdirat,
        mknodat, openat, readlinkat, statat, symlinkat, utimensat,
    },
    io::Errno,
};

use self::{
    attributes::{Owner, Owners},
    content::Content,
};
use crate::{fs, rootless::Rights, tree, userns::IdBase};

/// How many directories may wait for their turn: what bounds the memory that a tree can cost.
const MOST_WAITING: usize = 1 << 20;

/// What a copy came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// The content of all files, holes left out.
    pub bytes: u64,
}

/// Copies what is below `from` to `directory/layer`, which must not exist. Nothing may change it
/// meanwhile: if it seems that something does, the copy fails.
///
/// Links are copied, never followed, and neither depth nor breadth costs stack or descriptors. Of
/// the overlay's own marks those are kept that say what is gone; devices are left out. It breaks off
/// soon after `stop` is set. `own` was given to the sandbox.
pub fn copy(
    from: BorrowedFd<'_>,
    directory: &Path,
    own: IdBase,
    rights: Rights,
    stop: &AtomicBool,
) -> io::Result<Copied> {
    let links = directory.join("links");
    fs::create_dir(&links, 0o700).map_err(io::Error::other)?;
    fs::create_dir(directory.join("layer"), 0o700).map_err(io::Error::other)?;
    let owners = Owners::new(own, rights);
    let mut copy =
        Copy { owners, stop, links: open(CWD, &links)?, content: Content::default(), waiting: 0 };
    copy.tree(open(from, c".")?, open(CWD, directory.join("layer"))?)?;
    tree::remove(&links).map_err(io::Error::other)?;
    Ok(Copied { bytes: copy.content.bytes })
}

struct Copy<'a> {
    owners: Owners,
    stop: &'a AtomicBool,
    /// A second name for each file that has several, under its number in the original.
    links: OwnedFd,
    content: Content,
    waiting: usize,
}

/// A directory that waits for one below it to be done.
struct Above {
    identity: (u64, u64),
    /// Its directories that are still to be copied.
    pending: Vec<CString>,
}

impl Copy<'_> {
    fn tree(&mut self, mut from: OwnedFd, mut to: OwnedFd) -> io::Result<()> {
        let mut above: Vec<Above> = Vec::new();
        let mut pending = self.entries(&from, &to)?;
        loop {
            if let Some(name) = pending.pop() {
                above.push(Above { identity: identity(&from)?, pending });
                from = open(&from, &name)?;
                mkdirat(&to, &name, Mode::RWXU)?;
                to = open(&to, &name)?;
                pending = self.entries(&from, &to)?;
                continue;
            }
            // Last, for each new name in it has changed its times.
            self.dress(&from, &to, &fstat(&from)?)?;
            let Some(parent) = above.pop() else { return Ok(()) };
            self.waiting -= 1;
            from = open(&from, c"..")?;
            if identity(&from)? != parent.identity {
                return Err(changed());
            }
            to = open(&to, c"..")?;
            pending = parent.pending;
        }
    }

    /// Copies what is in a directory; those of its entries that are directories are named.
    fn entries(&mut self, from: &OwnedFd, to: &OwnedFd) -> io::Result<Vec<CString>> {
        let mut directories = Vec::new();
        for entry in Dir::read_from(from)? {
            if self.stop.load(Ordering::Relaxed) {
                return Err(broken_off());
            }
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                self.waiting += 1;
                if self.waiting > MOST_WAITING {
                    return Err(io::Error::other("there are too many directories to copy"));
                }
                directories.push(name.to_owned());
            } else {
                self.entry(from, to, name, &stat)?;
            }
        }
        Ok(directories)
    }

    /// Copies what is not a directory, or gives it another name if it was copied already.
    fn entry(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr, stat: &Stat) -> io::Result<()> {
        if stat.st_nlink == 1 {
            return self.alone(from, to, name, stat);
        }
        let number = stat.st_ino.to_string();
        match linkat(&self.links, &number, to, name, AtFlags::empty()) {
            Ok(()) => return Ok(()),
            // With the name in `links` a file has one more than the original, which may be too many.
            Err(Errno::NOENT | Errno::MLINK) => {}
            Err(error) => return Err(error.into()),
        }
        self.alone(from, to, name, stat)?;
        match linkat(to, name, &self.links, &number, AtFlags::empty()) {
            // A device that was left out has no second name either.
            Ok(()) | Err(Errno::EXIST | Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn alone(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr, stat: &Stat) -> io::Result<()> {
        let owner = Owner::of(stat, self.owners);
        let kind = FileType::from_raw_mode(stat.st_mode);
        match kind {
            FileType::RegularFile => return self.file(from, to, name),
            FileType::Symlink => symlinkat(readlinkat(from, name, Vec::new())?, to, name)?,
            FileType::Fifo | FileType::Socket => mknodat(to, name, kind, Mode::empty(), 0)?,
            // How the overlay says that something below is gone.
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                return Ok(mknodat(to, name, kind, Mode::empty(), 0)?);
            }
            // Nobody in a sandbox can make one, or use one that is there.
            FileType::CharacterDevice | FileType::BlockDevice => return Ok(()),
            FileType::Directory | FileType::Unknown => return Err(changed()),
        }
        chownat(to, name, Some(owner.user()), Some(owner.group()), AtFlags::SYMLINK_NOFOLLOW)?;
        if kind != FileType::Symlink {
            // After the owner, for a new one takes away set-id bits.
            chmodat(to, name, owner.mode(), AtFlags::empty())?;
        }
        Ok(utimensat(to, name, &attributes::times(stat), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn file(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr) -> io::Result<()> {
        // A pipe that took its place would keep a reader waiting.
        let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = openat(from, name, read, Mode::empty())?;
        let stat = fstat(&from)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(changed());
        }
        let make = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to = openat(to, name, make, Mode::RUSR | Mode::WUSR)?;
        self.content.copy(&from, &to, &stat, self.stop)?;
        self.dress(&from, &to, &stat)
    }

    /// Gives a file or directory all that the original has but its content.
    fn dress(&mut self, from: &OwnedFd, to: &OwnedFd, stat: &Stat) -> io::Result<()> {
        attributes::copy(from, to, stat, self.owners)
    }
}

fn open(at: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    fstat(directory).map(|stat| (stat.st_dev, stat.st_ino))
}

fn broken_off() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the copy was broken off")
}

fn changed() -> io::Error {
    io::Error::other("the files changed while they were copied")
}

#[cfg(test)]
mod tests;
