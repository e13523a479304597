//! What is told of a file.

use std::{
    collections::BTreeMap,
    ffi::{CStr, OsStr},
    io,
    os::fd::{AsFd, OwnedFd},
};

use osb_sys::{
    rootless::Rights,
    userns::{IdBase, RANGE},
};
use rustix::{
    fs::{AtFlags, Stat, fgetxattr, flistxattr, statat},
    io::Errno,
};

/// Whom a file belongs to that belongs to nobody inside.
const NOBODY: u32 = 65_534;
/// The most that the kernel gives, both for a value and for the list of names (`xattr(7)`).
const MOST: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
    /// In a layer: what says that something below is gone.
    Whiteout,
}

/// What a file is, with the owners that are seen inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub kind: Kind,
    /// The lower twelve bits.
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub size: u64,
    /// In seconds since 1970.
    pub modified: i64,
    /// How many names it has.
    pub names: u64,
    /// Equal for all its names.
    pub identity: (u64, u64),
}

impl Seen {
    pub(super) fn of(stat: &Stat, owners: IdBase) -> Self {
        let inside = |id: u32| id.checked_sub(owners.0).filter(|id| *id < RANGE).unwrap_or(NOBODY);
        Self {
            kind: super::kind_of(stat.st_mode, stat.st_rdev),
            mode: stat.st_mode & 0o7777,
            user: inside(stat.st_uid),
            group: inside(stat.st_gid),
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: stat.st_mtime,
            names: stat.st_nlink,
            identity: (stat.st_dev, stat.st_ino),
        }
    }

    pub(crate) fn is_whiteout(&self) -> bool {
        self.kind == Kind::Whiteout
    }
}

pub(super) fn look(at: &OwnedFd, name: &OsStr, owners: IdBase) -> io::Result<Option<Seen>> {
    match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Seen::of(&stat, owners))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a directory of a layer says that nothing below it shines through.
pub(super) fn is_opaque(directory: impl AsFd, rights: Rights) -> io::Result<bool> {
    let name = match rights {
        Rights::Root => c"trusted.overlay.opaque",
        Rights::User => c"user.overlay.opaque",
    };
    let mut value = [0; 1];
    match fgetxattr(directory, name, &mut value[..]) {
        Ok(count) => Ok(count == 1 && value == *b"y"),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The attributes that an image keeps: what users noted, and what a program may do.
pub(super) fn extended(file: &OwnedFd, owners: IdBase) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; MOST];
    let count = match flistxattr(file, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        result => result?,
    };
    names.truncate(count);
    let mut kept = BTreeMap::new();
    for name in names.split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
        let bytes = name.to_bytes();
        let is_note = bytes.starts_with(b"user.") && !bytes.starts_with(b"user.overlay.");
        if !is_note && bytes != b"security.capability" {
            continue;
        }
        let mut value = vec![0; MOST];
        let count = fgetxattr(file, name, &mut value[..])?;
        value.truncate(count);
        let value = if is_note { Some(value) } else { powers(value, owners) };
        kept.extend(value.map(|value| (bytes.to_vec(), value)));
    }
    Ok(kept)
}

/// `struct vfs_ns_cap_data` without the word that names the root of a user namespace, if that is the
/// one of `owners`.
fn powers(mut value: Vec<u8>, owners: IdBase) -> Option<Vec<u8>> {
    match (value.len(), value.get(3)) {
        (20, Some(2)) => Some(value),
        (24, Some(3)) => {
            let root = value.split_off(20);
            if let Some(version) = value.get_mut(3) {
                *version = 2;
            }
            (root == owners.0.to_le_bytes()).then_some(value)
        }
        _ => None,
    }
}
