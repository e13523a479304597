//! What the layers below a new one show.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat, fgetxattr, fstat, openat, readlinkat, statat},
    io::Errno,
};

use super::{Attributes, open};
use crate::{rootless::Rights, userns::IdBase};

/// The layers, topmost first.
#[derive(Debug)]
pub(crate) struct Below {
    layers: Vec<OwnedFd>,
    rights: Rights,
}

/// Something in one of the layers.
#[derive(Debug)]
pub(super) struct Found {
    /// The directory of the layer that it is in.
    pub(super) around: OwnedFd,
    pub(super) name: CString,
    pub(super) stat: Stat,
}

impl Found {
    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// What a link says.
    pub(super) fn target(&self) -> Result<CString, Errno> {
        readlinkat(&self.around, &self.name, Vec::new())
    }

    pub(super) fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(&self.around, &self.name, flags, Mode::empty())
    }

    pub(super) fn attributes(&self, owners: IdBase) -> io::Result<Attributes> {
        Attributes::of(&self.open()?, &self.stat, owners)
    }
}

impl Below {
    pub(crate) fn new(layers: Vec<OwnedFd>, rights: Rights) -> Self {
        Self { layers, rights }
    }

    /// What is at this path, all of whose directories are such and no links.
    pub(super) fn find(&self, path: &[&CString]) -> Result<Option<Found>, Errno> {
        let Some((name, way)) = path.split_last() else { return Ok(None) };
        for layer in &self.layers {
            match self.find_in(layer, way, name)? {
                Lookup::Found(found) => return Ok(Some(found)),
                Lookup::Hidden => return Ok(None),
                Lookup::Absent => {}
            }
        }
        Ok(None)
    }

    fn find_in(&self, layer: &OwnedFd, way: &[&CString], name: &CString) -> Result<Lookup, Errno> {
        let mut around = open(layer, c".")?;
        let mut shines_through = true;
        let absent = |shines_through| if shines_through { Lookup::Absent } else { Lookup::Hidden };
        for step in way {
            around = match open(&around, *step) {
                Ok(next) => next,
                Err(Errno::NOENT) => return Ok(absent(shines_through)),
                // Neither what is gone here nor a file lets anything below shine through.
                Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Lookup::Hidden),
                Err(error) => return Err(error),
            };
            shines_through &= !is_opaque(&around, self.rights)?;
        }
        match statat(&around, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_whiteout(&stat) => Ok(Lookup::Hidden),
            Ok(stat) => Ok(Lookup::Found(Found { around, name: name.clone(), stat })),
            Err(Errno::NOENT) => Ok(absent(shines_through)),
            Err(error) => Err(error),
        }
    }

    pub(super) fn attributes_of_root(&self, owners: IdBase) -> io::Result<Attributes> {
        match self.layers.first() {
            Some(layer) => Attributes::of(layer, &fstat(layer)?, owners),
            None => Ok(Attributes::of_nobodys_directory()),
        }
    }
}

enum Lookup {
    Found(Found),
    /// It is not there, and nothing further below counts.
    Hidden,
    Absent,
}

/// How the overlay says that something below is gone.
pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// How the overlay says that nothing of this directory shines through from below.
pub(super) fn opaque_mark(rights: Rights) -> &'static CStr {
    match rights {
        Rights::Root => c"trusted.overlay.opaque",
        Rights::User => c"user.overlay.opaque",
    }
}

pub(crate) fn is_opaque(directory: impl AsFd, rights: Rights) -> Result<bool, Errno> {
    let mut value = [0; 2];
    match fgetxattr(directory, opaque_mark(rights), &mut value[..]) {
        Ok(count) => Ok(value.get(..count) == Some(b"y")),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(error) => Err(error),
    }
}
