//! Directories and files of the host.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use osb_core::{Volume, VolumeProblem};
use osb_sys::beneath;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
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
    beneath::open_or_make(&top, below).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::XDEV) => VolumeError::refused(
            VolumeProblem::HostPathNotAllowed,
            format!("a link in the host path {shown} leads out of {}", around.display()),
        ),
        Some(errno) if is_in_the_way(errno) => VolumeError::refused(
            VolumeProblem::HostPathNotFound,
            format!("the host path {shown} leads nowhere: a link or a file is in the way"),
        ),
        _ => VolumeError::failed(volume, error),
    })
}

/// Names a directory that the operator wrote down. It has no links in it, so nobody can turn one
/// of the directories on the way into another.
fn open_allowed(path: &Path) -> io::Result<OwnedFd> {
    let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), plain)?)
}
