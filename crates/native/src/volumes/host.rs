//! Directories and files of the host.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use osb_core::{Volume, VolumeProblem};
use osb_sys::beneath;
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2},
    io::Errno,
};

use super::{VolumeError, is_in_the_way};

/// What is at `path`, which must lie below one of `allowed`. A missing directory is made.
pub(super) fn find(
    volume: &Volume,
    path: &Path,
    allowed: &[PathBuf],
) -> Result<OwnedFd, VolumeError> {
    let shown = path.display();
    // The outermost: whatever lies below it, a sandbox may have changed.
    let around = allowed.iter().filter(|allowed| path.starts_with(allowed));
    let around = around.min_by_key(|allowed| allowed.components().count()).ok_or_else(|| {
        let message = if allowed.is_empty() {
            "this server shows sandboxes no paths of its host: its operator can allow some with \
             allowed-host-paths in the table [storage] of its configuration"
                .to_owned()
        } else {
            format!("the host path {shown} is not below one that this server's operator allowed")
        };
        VolumeError::refused(VolumeProblem::HostPathNotAllowed, message)
    })?;
    let top = open_allowed(around).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => VolumeError::refused(
            VolumeProblem::HostPathNotFound,
            format!(
                "the allowed host path {} is not there, is no directory, or has a link in it",
                around.display()
            ),
        ),
        _ => VolumeError::failed(volume, error),
    })?;
    let below = path.strip_prefix(around).unwrap_or(path);
    let found = beneath::open_or_make(&top, below);
    let found = found.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::XDEV) => VolumeError::refused(
            VolumeProblem::HostPathNotAllowed,
            format!("a link in the host path {shown} leads out of {}", around.display()),
        ),
        Some(errno) if is_in_the_way(errno) => VolumeError::refused(
            VolumeProblem::HostPathNotFound,
            format!("the host path {shown} leads nowhere: a link or a file is in the way"),
        ),
        Some(errno @ (Errno::ROFS | Errno::NOSPC | Errno::DQUOT | Errno::ACCESS | Errno::PERM)) => {
            VolumeError::refused(
                VolumeProblem::HostPathNotMade,
                format!("the host path {shown} is not there and cannot be made: {errno}"),
            )
        }
        _ => VolumeError::failed(volume, error),
    })?;
    let owner = fstat(&found).map_err(|error| VolumeError::failed(volume, error))?;
    let way = beneath::way(&top, below, &found);
    if !way.is_ok_and(|way| way.iter().all(|entry| is_guarded(entry, &owner))) {
        return Err(VolumeError::refused(
            VolumeProblem::HostPathNotAllowed,
            format!(
                "a directory or link on the way to the host path {shown} is somebody else's than \
                 root's and that of the owner of the path, or somebody else can change it"
            ),
        ));
    }
    Ok(found)
}

/// Whether this directory or link leads only where root wants, or the owner of what was found, as
/// whom the sandbox will act. Otherwise a sandbox could put files of others in the place of its own,
/// for the next one to own.
fn is_guarded(entry: &Stat, found: &Stat) -> bool {
    let is_own = entry.st_uid == found.st_uid;
    let mode = Mode::from_raw_mode(entry.st_mode);
    let is_shared = mode.contains(Mode::WOTH)
        || mode.contains(Mode::WGRP) && !(is_own && entry.st_gid == found.st_gid);
    // A link's mode says nothing. In a sticky directory everybody can only add what is theirs.
    let is_link = FileType::from_raw_mode(entry.st_mode) == FileType::Symlink;
    (is_own || entry.st_uid == 0) && (is_link || !is_shared || mode.contains(Mode::SVTX))
}

/// Names a directory that the operator wrote down. It has no links in it, so nobody can turn one
/// of the directories on the way into another.
fn open_allowed(path: &Path) -> io::Result<OwnedFd> {
    let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), plain)?)
}
