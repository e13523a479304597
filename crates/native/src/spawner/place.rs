//! Places in the root of a sandbox at which something is mounted.

use std::{
    ffi::OsStr,
    os::fd::OwnedFd,
    path::{Component, Path},
};

use osb_sys::{fork::SingleThread, identity, step::Refusal, userns::IdBase};
use rustix::{
    fs::{FileType, Mode, OFlags, fstat, mkdirat, openat},
    io::Errno,
};

use super::protocol::{Failure, Step};

/// A place that something needs.
pub(super) struct Wanted<'a> {
    pub(super) at: &'a Path,
    pub(super) kind: FileType,
    /// What the place is for, in words for whoever asked.
    pub(super) doing: &'a str,
    /// What is at fault if something else is there.
    pub(super) refusal: Refusal,
}

/// A directory of the root that the sandbox cannot do without, made if the image does not have it.
pub(super) fn directory(
    alone: &SingleThread,
    root: &OwnedFd,
    at: &Path,
    base: IdBase,
) -> Result<OwnedFd, Failure> {
    let doing = format!("mount {}", at.display());
    let kind = FileType::Directory;
    let wanted = Wanted { at, kind, doing: &doing, refusal: Refusal::Image };
    if let Ok(found) = wanted.walk(root, enter_only) {
        return Ok(found);
    }
    identity::with_files_of(alone, base.0, base.0, || wanted.find_or_make(root)).step(&doing)?
}

impl Wanted<'_> {
    /// The place below `root`, made with its parents if it is missing. No link is followed: the
    /// image, a snapshot or another volume may have put it there.
    pub(super) fn find_or_make(&self, root: &OwnedFd) -> Result<OwnedFd, Failure> {
        self.walk(root, enter)
    }

    fn walk(
        &self,
        root: &OwnedFd,
        enter: fn(&OwnedFd, &OsStr, FileType) -> Result<OwnedFd, Obstacle>,
    ) -> Result<OwnedFd, Failure> {
        let refused = |cause: String| Failure::refused(self.refusal, self.doing, cause);
        let mut here = root.try_clone().step(self.doing)?;
        let mut names = self.at.components().peekable();
        while let Some(part) = names.next() {
            let name = match part {
                Component::RootDir => continue,
                Component::Normal(name) => name,
                Component::CurDir | Component::ParentDir | Component::Prefix(_) => {
                    return Err(refused("the path is not plain".to_owned()));
                }
            };
            let wanted = if names.peek().is_none() { self.kind } else { FileType::Directory };
            let shown = Path::new(name).display();
            here = enter(&here, name, wanted).map_err(|cause| match cause {
                Obstacle::Kind(found) => refused(format!("{shown} is {found} there")),
                Obstacle::Kernel(Errno::ROFS) => refused(format!("{shown} cannot be made there")),
                Obstacle::Kernel(errno) => Failure::new(self.doing, &errno),
            })?;
        }
        Ok(here)
    }
}

enum Obstacle {
    Kind(&'static str),
    Kernel(Errno),
}

impl From<Errno> for Obstacle {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

const FOUND: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The entry of this name and kind, made if it is missing.
fn enter(directory: &OwnedFd, name: &OsStr, wanted: FileType) -> Result<OwnedFd, Obstacle> {
    match enter_only(directory, name, wanted) {
        Err(Obstacle::Kernel(Errno::NOENT)) => {}
        result => return result,
    }
    if wanted == FileType::Directory {
        mkdirat(directory, name, Mode::from_raw_mode(0o755))?;
    } else {
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        drop(openat(directory, name, new, Mode::from_raw_mode(0o644))?);
    }
    enter_only(directory, name, wanted)
}

/// The entry of this name and kind.
fn enter_only(directory: &OwnedFd, name: &OsStr, wanted: FileType) -> Result<OwnedFd, Obstacle> {
    let entry = openat(directory, name, FOUND, Mode::empty())?;
    let found = FileType::from_raw_mode(fstat(&entry)?.st_mode);
    match (wanted, found) {
        (_, FileType::Symlink) => Err(Obstacle::Kind("a symbolic link")),
        (FileType::Directory, FileType::Directory) => Ok(entry),
        (FileType::Directory, _) => Err(Obstacle::Kind("no directory")),
        (_, FileType::Directory) => Err(Obstacle::Kind("a directory, and the volume a file")),
        (_, _) => Ok(entry),
    }
}
