//! Owners, modes, times and extended attributes of files in layers.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{
        Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown, fgetxattr,
        flistxattr, fsetxattr, futimens,
    },
    io::Errno,
};

use crate::{
    layer::attributes::{outside, set_word, word},
    rootless::Rights,
    userns::{IdBase, RANGE},
};

/// Whom a file belongs to whose owner no sandbox has.
const NOBODY: u32 = 65_534;
/// The most that the kernel takes, both for a value and for the list of names (`xattr(7)`).
const MOST: usize = 64 << 10;

/// What a file has beside its content. Ids are those that are seen inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) mode: u32,
    pub(super) modified: Moment,
    pub(super) extended: Vec<(CString, Vec<u8>)>,
}

/// A time, as files have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    pub seconds: i64,
    pub nanoseconds: u32,
}

impl Attributes {
    /// What an owner is who has no id in a sandbox, is nobody, and lends nobody his rights.
    pub fn new(user: Option<u32>, group: Option<u32>, mode: u32, modified: Moment) -> Self {
        let (user, group) = (user.filter(|id| *id < RANGE), group.filter(|id| *id < RANGE));
        let mut mode = mode & 0o7777;
        mode &= if user.is_none() { !0o4000 } else { !0 };
        mode &= if group.is_none() { !0o2000 } else { !0 };
        let (user, group) = (user.unwrap_or(NOBODY), group.unwrap_or(NOBODY));
        Self { user, group, mode, modified, extended: Vec::new() }
    }

    /// Those of a directory that nobody has described.
    pub fn of_nobodys_directory() -> Self {
        Self::new(Some(0), Some(0), 0o755, Moment::default())
    }

    /// Adds an extended attribute. Answers whether it is one that files of a layer have: those that
    /// the kernel acts upon are not an archive's to give, but for the powers of programs and access lists.
    pub fn extend(&mut self, name: &[u8], value: &[u8]) -> bool {
        let kept = match name {
            b"security.capability" => matches!(value.len(), 20 | 24),
            b"system.posix_acl_access" | b"system.posix_acl_default" => true,
            // How the overlay marks what is gone where the server is not root.
            _ if name.starts_with(b"user.overlay.") => false,
            _ => name.starts_with(b"user.") && name.len() > 5,
        };
        let Ok(name) = CString::new(name) else { return false };
        if kept && value.len() <= MOST {
            self.extended.retain(|(other, _)| *other != name);
            self.extended.push((name, value.to_vec()));
        }
        kept
    }

    pub(super) fn times(&self) -> Timestamps {
        let moment = Timespec {
            tv_sec: self.modified.seconds,
            tv_nsec: self.modified.nanoseconds.min(999_999_999).into(),
        };
        Timestamps { last_access: moment, last_modification: moment }
    }

    pub(super) fn user(&self, owners: IdBase) -> Uid {
        Uid::from_raw(owners.0 + self.user)
    }

    pub(super) fn group(&self, owners: IdBase) -> Gid {
        Gid::from_raw(owners.0 + self.group)
    }

    /// The bits that a new file can be made with.
    pub(super) fn first_mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode & 0o1777)
    }

    /// Gives a file that was just made with [`Self::first_mode`] all of it. It belongs to root so
    /// far: no directory hands anything down before the layer is done.
    pub(super) fn dress(&self, file: impl AsFd, owners: IdBase, rights: Rights) -> io::Result<()> {
        let foreign = (self.user, self.group, owners) != (0, 0, IdBase(0));
        if foreign {
            fchown(&file, Some(self.user(owners)), Some(self.group(owners)))?;
        }
        for (name, value) in &self.extended {
            let value = match name.to_bytes() {
                b"security.capability" => powers(value, owners, rights),
                b"system.posix_acl_access" | b"system.posix_acl_default" => {
                    let mut value = value.clone();
                    outside(&mut value, owners);
                    Some(value)
                }
                _ => Some(value.clone()),
            };
            if let Some(value) = value {
                fsetxattr(&file, name, &value, XattrFlags::empty())?;
            }
        }
        // A new owner takes set-id bits away, and an access list changes the mode.
        if self.mode & 0o6000 != 0 || !self.extended.is_empty() || foreign {
            fchmod(&file, Mode::from_raw_mode(self.mode))?;
        }
        Ok(futimens(&file, &self.times())?)
    }

    /// Those of a file in a layer.
    pub(super) fn of(file: &OwnedFd, stat: &Stat, owners: IdBase) -> io::Result<Self> {
        let inside = |id: u32| id.checked_sub(owners.0);
        let mode = stat.st_mode & 0o7777;
        let mut attributes =
            Self::new(inside(stat.st_uid), inside(stat.st_gid), mode, modified(stat));
        each(file, |name, value| {
            attributes.extend(name.to_bytes(), value);
            Ok(())
        })?;
        Ok(attributes)
    }
}

pub(super) fn modified(stat: &Stat) -> Moment {
    Moment {
        seconds: stat.st_mtime,
        nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or_default(),
    }
}

/// Gives `to` what `from`, of another layer, has beside its content, without the marks of the overlay.
pub(crate) fn copy(from: &OwnedFd, to: &OwnedFd, stat: &Stat) -> io::Result<()> {
    fchown(to, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    each(from, |name, value| {
        let bytes = name.to_bytes();
        let is_mark = bytes.starts_with(b"trusted.overlay.") || bytes.starts_with(b"user.overlay.");
        if is_mark || bytes.starts_with(b"security.") && bytes != b"security.capability" {
            return Ok(());
        }
        Ok(fsetxattr(to, name, value, XattrFlags::empty())?)
    })?;
    fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let moment = Timespec {
        tv_sec: stat.st_mtime,
        tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or_default(),
    };
    Ok(futimens(to, &Timestamps { last_access: moment, last_modification: moment })?)
}

/// Visits each extended attribute.
fn each(file: &OwnedFd, mut visit: impl FnMut(&CStr, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut names = vec![0; 1024];
    let count = match flistxattr(file, &mut names[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(Errno::RANGE) => {
            names.resize(MOST, 0);
            flistxattr(file, &mut names[..])?
        }
        result => result?,
    };
    names.truncate(count);
    let mut value = vec![0; MOST];
    for name in names.split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(io::Error::other)?;
        let count = fgetxattr(file, name, &mut value[..])?;
        visit(name, value.get(..count).unwrap_or_default())?;
    }
    Ok(())
}

/// `struct vfs_ns_cap_data`: five words, and a sixth in version 3 that names the root of a user
/// namespace, which in an archive can only be the root inside.
///
/// On disk it is version 2 where the owners of layers are translated for each sandbox: the kernel
/// translates the root that this version means with them.
fn powers(value: &[u8], owners: IdBase, rights: Rights) -> Option<Vec<u8>> {
    const VERSION_2: u32 = 0x0200_0000;
    const VERSION_3: u32 = 0x0300_0000;
    const VERSIONS: u32 = 0xff00_0000;
    let head = word(value, 0)?;
    match (head & VERSIONS, value.len()) {
        (VERSION_2, 20) => {}
        (VERSION_3, 24) if word(value, 20) == Some(0) => {}
        _ => return None,
    }
    let mut value = value.get(..20)?.to_vec();
    match rights {
        Rights::Root => set_word(&mut value, 0, head & !VERSIONS | VERSION_2),
        Rights::User => {
            set_word(&mut value, 0, head & !VERSIONS | VERSION_3);
            value.extend(owners.0.to_le_bytes());
        }
    }
    Some(value)
}
