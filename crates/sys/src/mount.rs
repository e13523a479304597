//! Mounts that exist before they have a place: made, configured, then attached.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::CWD,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
        OpenTreeFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
        mount_change, move_mount, open_tree,
    },
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space},
};

use crate::fork::{SingleThread, unshare};

pub use rustix::mount::MountAttrFlags as Attributes;

/// An option of a file system.
#[derive(Debug, Clone, Copy)]
pub enum FsOption<'a> {
    Flag(&'a str),
    Text(&'a str, &'a str),
}

/// Gives this process a copy of the mounts that no longer follows the host's, nor the host its.
pub fn leave_host_mounts(alone: &SingleThread) -> io::Result<()> {
    unshare(alone, UnshareFlags::NEWNS)?;
    make_private()
}

/// Moves this process into a mount namespace, to its root.
pub fn enter(_alone: &SingleThread, namespace: impl AsFd) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?)
}

/// A new instance of a file system, not yet attached anywhere.
pub fn filesystem(
    kind: &str,
    options: &[FsOption<'_>],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for option in options {
        match option {
            FsOption::Flag(key) => fsconfig_set_flag(&context, *key)?,
            FsOption::Text(key, value) => fsconfig_set_string(&context, *key, *value)?,
        }
    }
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// A second view of an existing directory or file, without the mounts below it, not yet attached.
pub fn view(path: &Path) -> io::Result<OwnedFd> {
    Ok(open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
}

/// As [`view`], with the mounts below it if it cannot be had without them: whoever is not the host's
/// root may not look under the host's mounts.
pub fn view_or_all(path: &Path) -> io::Result<OwnedFd> {
    match view(path) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_RECURSIVE;
            Ok(open_tree(CWD, path, flags)?)
        }
        result => result,
    }
}

/// A second view of what `place` names, with the mounts below it, not yet attached.
pub fn view_of(place: impl AsFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(place, c"", flags)?)
}

/// Gives a mount the place that `target` names.
pub fn attach_at(mount: impl AsFd, target: impl AsFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, c"", target, c"", flags)?)
}

/// Cuts the mounts of this process's namespace off from those that they were copied from.
pub fn make_private() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Gives a mount its place.
pub fn attach(mount: impl AsFd, target: &Path) -> io::Result<()> {
    Ok(move_mount(mount, c"", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Adds attributes such as read-only to a mount.
pub fn restrict(mount: impl AsFd, attributes: MountAttrFlags) -> io::Result<()> {
    set_attributes(mount.as_fd(), 0, &MountAttributes { set: attributes.bits().into(), ..NONE })
}

/// As [`restrict`], with all mounts below it.
pub fn restrict_all(mount: impl AsFd, attributes: MountAttrFlags) -> io::Result<()> {
    let set = MountAttributes { set: attributes.bits().into(), ..NONE };
    set_attributes(mount.as_fd(), libc::AT_RECURSIVE, &set)
}

/// Cuts a mount off from the one that it is a second view of: neither follows the other's changes.
pub fn isolate(mount: impl AsFd) -> io::Result<()> {
    set_attributes(mount.as_fd(), 0, &MountAttributes { propagation: libc::MS_PRIVATE, ..NONE })
}

/// Shows the files of a detached mount with their owners translated by `user_namespace`.
pub fn map_ids(mount: impl AsFd, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let userns = u64::try_from(user_namespace.as_raw_fd()).map_err(io::Error::other)?;
    let idmap = MountAttributes { set: libc::MOUNT_ATTR_IDMAP, userns, ..NONE };
    set_attributes(mount.as_fd(), 0, &idmap)
}

/// Prepares a detached mount, with all mounts below it, for another mount namespace: with these
/// attributes, with owners translated by `user_namespace` if there is one, and cut off from mounts
/// that are made or taken away later at its origin.
pub fn prepare_all(
    mount: impl AsFd,
    attributes: MountAttrFlags,
    user_namespace: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut attributes =
        MountAttributes { set: attributes.bits().into(), propagation: libc::MS_PRIVATE, ..NONE };
    if let Some(users) = user_namespace {
        attributes.set |= libc::MOUNT_ATTR_IDMAP;
        attributes.userns = u64::try_from(users.as_raw_fd()).map_err(io::Error::other)?;
    }
    set_attributes(mount.as_fd(), libc::AT_RECURSIVE, &attributes)
}

/// `struct mount_attr` of `mount_setattr(2)`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

const NONE: MountAttributes = MountAttributes { set: 0, clear: 0, propagation: 0, userns: 0 };

fn set_attributes(
    mount: BorrowedFd<'_>,
    depth: libc::c_int,
    attributes: &MountAttributes,
) -> io::Result<()> {
    // SAFETY: the structure has the layout of version 0 and its size says so; the kernel only
    // reads it during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | depth,
            std::ptr::from_ref(attributes),
            size_of::<MountAttributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
