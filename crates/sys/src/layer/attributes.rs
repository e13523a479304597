//! Owners, modes, times and extended attributes, in the ids that are seen inside.

use std::{ffi::CStr, io, os::fd::OwnedFd};

use rustix::{
    fs::{
        FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown,
        fgetxattr, flistxattr, fsetxattr, futimens,
    },
    io::Errno,
};

use crate::{
    rootless::Rights,
    userns::{IdBase, RANGE},
};

/// Whom a file belongs to that belongs to nobody of the sandbox.
const NOBODY: u32 = 65_534;
/// The most that the kernel takes, both for a value and for the list of names (`xattr(7)`).
const MOST: usize = 64 << 10;

/// How owners are translated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owners {
    /// What the sandbox's ids begin with.
    from: IdBase,
    /// What those of the layer begin with.
    to: IdBase,
    rights: Rights,
}

impl Owners {
    pub(super) fn new(own: IdBase, rights: Rights) -> Self {
        Self { from: rights.ids_of(own), to: rights.ids_of_layers(), rights }
    }

    /// The id in the layer, if the sandbox sees this one.
    fn translate(self, id: u32) -> Option<u32> {
        id.checked_sub(self.from.0).filter(|id| *id < RANGE).map(|id| id + self.to.0)
    }

    fn nobody(self) -> u32 {
        self.to.0 + NOBODY
    }
}

/// The owner of a file in a layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl Owner {
    pub(super) fn of(stat: &Stat, owners: Owners) -> Self {
        let (uid, gid) = (owners.translate(stat.st_uid), owners.translate(stat.st_gid));
        let mut mode = stat.st_mode & 0o7777;
        // A file of the host's own lends nobody its rights.
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            mode &= if uid.is_none() { !0o4000 } else { !0 };
            mode &= if gid.is_none() { !0o2000 } else { !0 };
        }
        let nobody = owners.nobody();
        Self { uid: uid.unwrap_or(nobody), gid: gid.unwrap_or(nobody), mode }
    }

    pub(super) fn user(self) -> Uid {
        Uid::from_raw(self.uid)
    }

    pub(super) fn group(self) -> Gid {
        Gid::from_raw(self.gid)
    }

    pub(super) fn mode(self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }
}

pub(super) fn times(stat: &Stat) -> Timestamps {
    let moment = |seconds: i64, nanoseconds| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or_default(),
    };
    Timestamps {
        last_access: moment(stat.st_atime, stat.st_atime_nsec),
        last_modification: moment(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// Gives `to` what `from` has but its content.
pub(super) fn copy(from: &OwnedFd, to: &OwnedFd, stat: &Stat, owners: Owners) -> io::Result<()> {
    let owner = Owner::of(stat, owners);
    // In this order: a new owner takes away powers and set-id bits, and an access list changes
    // the mode.
    fchown(to, Some(owner.user()), Some(owner.group()))?;
    extended(from, to, owners)?;
    fchmod(to, owner.mode())?;
    Ok(futimens(to, &times(stat))?)
}

fn extended(from: &OwnedFd, to: &OwnedFd, owners: Owners) -> io::Result<()> {
    let mut names = Vec::new();
    match read(&mut names, |buffer| flistxattr(from, buffer)) {
        Ok(()) if names.is_empty() => return Ok(()),
        Ok(()) => {}
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let mut value = Vec::new();
    for name in names.split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
        let keep = keep(name.to_bytes(), owners.rights)?;
        if matches!(keep, Keep::No) {
            continue;
        }
        read(&mut value, |buffer| fgetxattr(from, name, buffer))?;
        match keep {
            Keep::No | Keep::AsIs => {}
            Keep::Powers => powers(&mut value, owners),
            Keep::AccessList => access_list(&mut value, owners),
        }
        if !value.is_empty() || matches!(keep, Keep::AsIs) {
            fsetxattr(to, name, &value, XattrFlags::empty())?;
        }
    }
    Ok(())
}

/// Reads into a buffer that is made longer only if it has to be.
fn read(
    into: &mut Vec<u8>,
    mut get: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    for size in [1024, MOST] {
        into.resize(size, 0);
        match get(into) {
            Err(Errno::RANGE) if size < MOST => {}
            result => return result.map(|count| into.truncate(count)),
        }
    }
    Err(Errno::RANGE)
}

enum Keep {
    No,
    AsIs,
    /// As what a program may do, which names the root that it belongs to.
    Powers,
    /// As a list of users and groups.
    AccessList,
}

fn keep(name: &[u8], rights: Rights) -> io::Result<Keep> {
    let marks: &[u8] = match rights {
        Rights::Root => b"trusted.overlay.",
        Rights::User => b"user.overlay.",
    };
    if let Some(mark) = name.strip_prefix(marks) {
        return match mark {
            // The directory hides what is below it.
            b"opaque" => Ok(Keep::AsIs),
            // Such a file is not here as a whole. Sandboxes are mounted so that none comes to be.
            b"redirect" | b"metacopy" => {
                Err(io::Error::other("a file has its content in another layer"))
            }
            // How the overlay keeps a mark that somebody inside has made.
            _ if mark.starts_with(b"overlay.") => Ok(Keep::AsIs),
            // Among them what the overlay notes about the layers that it had below.
            _ => Ok(Keep::No),
        };
    }
    Ok(match name {
        b"security.capability" => Keep::Powers,
        b"system.posix_acl_access" | b"system.posix_acl_default" => Keep::AccessList,
        _ if name.starts_with(b"user.") => Keep::AsIs,
        _ => Keep::No,
    })
}

/// `struct vfs_ns_cap_data`: five words, and a sixth that names the root of a user namespace. What
/// belongs to another root than the sandbox's own is made empty.
fn powers(value: &mut Vec<u8>, owners: Owners) {
    const VERSION_2: u32 = 0x0200_0000;
    const VERSION_3: u32 = 0x0300_0000;
    const VERSIONS: u32 = 0xff00_0000;
    let (Some(head), Some(root)) = (word(value, 0), word(value, 20)) else {
        // Without the sixth word they are of the host's root: nobody inside has that.
        value.clear();
        return;
    };
    match owners.rights {
        _ if head & VERSIONS != VERSION_3 || root != owners.from.0 => value.clear(),
        Rights::Root => {
            set_word(value, 0, head & !VERSIONS | VERSION_2);
            value.truncate(20);
        }
        Rights::User => set_word(value, 20, owners.to.0),
    }
}

/// A word that says 2, then eight bytes for each entry: tag, rights, and an id that has a meaning for
/// the tags 2 (a user) and 8 (a group).
fn access_list(value: &mut [u8], owners: Owners) {
    each_id(value, |id| owners.translate(id).unwrap_or_else(|| owners.nobody()));
}

/// Makes an access list with the ids that are seen inside one of a layer.
pub(crate) fn outside(value: &mut [u8], owners: IdBase) {
    each_id(value, |id| owners.0 + if id < RANGE { id } else { NOBODY });
}

fn each_id(value: &mut [u8], translate: impl Fn(u32) -> u32) {
    for at in (4..value.len()).step_by(8) {
        // The tag is the lower half of the word, the rights are the upper.
        let tag = word(value, at).map(|word| word & 0xffff);
        if let (Some(2 | 8), Some(id)) = (tag, word(value, at + 4)) {
            set_word(value, at + 4, translate(id));
        }
    }
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    word.try_into().ok().map(u32::from_le_bytes)
}

pub(crate) fn set_word(bytes: &mut [u8], at: usize, word: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}
