//! Where a path of an archive leads.

use std::ffi::CString;

use rustix::{
    fs::{AtFlags, FileType, mkdirat, readlinkat, statat},
    io::Errno,
};

use super::{Attributes, Tree, UnpackError, components, directories::ROOT};

/// How many links a way may have, as many as to the kernel.
const MAX_LINKS: usize = 40;

/// The longest path that the kernel takes. With links on its way, a short one can be longer.
const LONGEST_PATH: usize = 4000;

/// A name in a directory of the layer, which may or may not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) directory: usize,
    pub(super) name: CString,
}

enum Step {
    Into(usize),
    /// There is a link that says this.
    Along(CString),
}

impl Tree {
    /// Finds the place that a path names; the layer's own directory is none. Directories on the way
    /// that the layer does not have come from those below, or are made.
    pub(super) fn place(&mut self, path: &[u8]) -> Result<Option<Place>, UnpackError> {
        let mut ahead = components(path)?;
        let Some(name) = ahead.pop() else { return Ok(None) };
        ahead.reverse();
        let mut directory = ROOT;
        let mut links = 0;
        while let Some(next) = ahead.pop() {
            if next.as_bytes() == b".." {
                directory = self.directories.above(directory);
                continue;
            }
            match self.step(directory, next)? {
                Step::Into(inner) => directory = inner,
                Step::Along(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let target = target.as_bytes();
                    if target.first() == Some(&b'/') {
                        directory = ROOT;
                    }
                    ahead.extend(reversed(target)?);
                }
            }
        }
        Ok(Some(Place { directory, name }))
    }

    /// Goes on to what has this name in a directory.
    fn step(&mut self, directory: usize, name: CString) -> Result<Step, UnpackError> {
        if let Some(inner) = self.directories.inner(directory, &name) {
            return Ok(Step::Into(inner));
        }
        let at = self.directories.open(directory)?;
        match statat(at, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                return Ok(Step::Along(readlinkat(at, &name, Vec::new())?));
            }
            Ok(_) => return Err(Errno::NOTDIR.into()),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let attributes = match self.below(directory, &name)? {
            None => Attributes::of_nobodys_directory(),
            Some(found) => match found.kind() {
                FileType::Directory => found.attributes(self.owners)?,
                FileType::Symlink => return Ok(Step::Along(found.target()?)),
                FileType::RegularFile
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => return Err(Errno::NOTDIR.into()),
            },
        };
        self.make_directory(directory, name, attributes).map(Step::Into)
    }

    /// Makes a directory where the layer has none.
    pub(super) fn make_directory(
        &mut self,
        directory: usize,
        name: CString,
        attributes: Attributes,
    ) -> Result<usize, UnpackError> {
        if self.directories.path_length(directory) + name.as_bytes().len() >= LONGEST_PATH {
            return Err(UnpackError::Refused("the links on its way lead too deep"));
        }
        let mode = attributes.first_mode();
        let at = self.directories.open(directory)?;
        let replaces = match mkdirat(at, &name, mode) {
            Err(Errno::EXIST) => {
                let replaces = self.make_room(directory, &name)?;
                mkdirat(self.directories.open(directory)?, &name, mode)?;
                replaces
            }
            result => {
                result?;
                false
            }
        };
        // What was taken away here, or was replaced by a file before, does not come back.
        let hides = self.directories.get_mut(directory).is_some_and(|d| d.gone.contains(&name));
        let number = self.directories.add(directory, name, attributes);
        if let Some(added) = self.directories.get_mut(number) {
            added.opaque = replaces || hides;
        }
        Ok(number)
    }
}

/// The steps of a link's target, the last one first.
fn reversed(target: &[u8]) -> Result<Vec<CString>, Errno> {
    let parts = target.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts.rev().map(|part| CString::new(part).map_err(|_| Errno::INVAL)).collect()
}
