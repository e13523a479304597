//! Files that are on no disk: they are in the memory of the sandbox's `/dev`.

use std::{
    fs::File,
    io::{self, Seek},
    os::fd::OwnedFd,
};

use osb_sys::mount::{self, Attributes};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchmod, fchown, openat, unlinkat};

/// What a file is called until it has its place.
const NAME: &str = "dev/.lent";

/// A mount of a new file with this content. `root` is where the sandbox's root is put together.
pub(super) fn file(
    root: &OwnedFd,
    content: &OwnedFd,
    mode: u32,
    owner: (u32, u32),
) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(root, NAME, flags, Mode::empty())?);
    let mut content = File::from(content.try_clone()?);
    content.rewind()?;
    io::copy(&mut content, &mut &file)?;
    fchown(&file, Some(Uid::from_raw(owner.0)), Some(Gid::from_raw(owner.1)))?;
    fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
    let place =
        openat(root, NAME, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let mount = mount::view_of(&place)?;
    let attributes = super::ALWAYS | Attributes::MOUNT_ATTR_RDONLY | Attributes::MOUNT_ATTR_NOEXEC;
    mount::restrict(&mount, attributes)?;
    Ok(mount)
}

/// Takes the name of a file away that has its place, which keeps it. Not earlier: what has no name
/// cannot be mounted.
pub(super) fn hide(root: &OwnedFd) -> io::Result<()> {
    Ok(unlinkat(root, NAME, AtFlags::empty())?)
}
