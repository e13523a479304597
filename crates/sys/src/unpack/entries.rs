//! What the entries of an archive do.

use std::{
    ffi::CString,
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::atomic::AtomicBool,
};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, chmodat, chownat, linkat, mknodat, openat, statat,
        symlinkat, utimensat,
    },
    io::Errno,
};

use super::{
    Attributes, Tree, UnpackError, attributes, below::Found, directories::ROOT, resolve::Place,
};
use crate::{layer::content::Content, rootless::Rights, userns::IdBase};

/// How often a place is made free for an entry.
const TRIES: usize = 2;

impl Tree {
    pub fn directory(&mut self, path: &[u8], attributes: Attributes) -> Result<(), UnpackError> {
        let existing = match self.place(path)? {
            None => {
                self.describes_root = true;
                ROOT
            }
            Some(place) => {
                let inner = self.directories.inner(place.directory, &place.name);
                let Some(inner) = inner else {
                    self.make_directory(place.directory, place.name, attributes)?;
                    return Ok(());
                };
                inner
            }
        };
        if let Some(existing) = self.directories.get_mut(existing) {
            existing.attributes = attributes;
        }
        Ok(())
    }

    /// Makes a file that is empty so far.
    pub fn file(&mut self, path: &[u8], attributes: Attributes) -> Result<NewFile, UnpackError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = attributes.first_mode();
        let file = self.put(path, |at, name| openat(at, name, flags, mode))?;
        let (owners, rights) = (self.owners, self.rights);
        Ok(NewFile { file: file.into(), attributes, owners, rights })
    }

    pub fn symlink(
        &mut self,
        path: &[u8],
        target: &[u8],
        attributes: &Attributes,
    ) -> Result<(), UnpackError> {
        if target.is_empty() {
            return Err(UnpackError::Refused("it is a link to nothing"));
        }
        let owners = self.owners;
        self.put(path, |at, name| {
            symlinkat(target, at, name)?;
            own(at, name, attributes, owners)
        })
    }

    pub fn fifo(&mut self, path: &[u8], attributes: &Attributes) -> Result<(), UnpackError> {
        let owners = self.owners;
        self.put(path, |at, name| {
            mknodat(at, name, FileType::Fifo, attributes.first_mode(), 0)?;
            own(at, name, attributes, owners)?;
            chmodat(at, name, Mode::from_raw_mode(attributes.mode), AtFlags::empty())
        })
    }

    /// Gives the file that `target` names another name. One of a layer below is copied to this one;
    /// answers with how much was.
    pub fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<u64, UnpackError> {
        const TO_DIRECTORY: UnpackError =
            UnpackError::Refused("it is another name for a directory");
        let original = self.place(target)?.ok_or(TO_DIRECTORY)?;
        if self.directories.inner(original.directory, &original.name).is_some() {
            return Err(TO_DIRECTORY);
        }
        let at = self.directories.open(original.directory)?;
        let own = statat(at, &original.name, AtFlags::SYMLINK_NOFOLLOW);
        let mut copied = 0;
        if own.is_err_and(|error| error == Errno::NOENT) {
            let found = self.below(original.directory, &original.name)?;
            let absent = UnpackError::Refused("it is another name for a file that is not there");
            copied = self.copy_up(&found.ok_or(absent)?, &original)?;
        }
        let new = self.place(path)?.ok_or(TO_DIRECTORY)?;
        if new == original {
            return Ok(copied);
        }
        let from = self.directories.open(original.directory)?.try_clone_to_owned()?;
        self.put_at(&new, |at, name| linkat(&from, &original.name, at, name, AtFlags::empty()))?;
        Ok(copied)
    }

    /// Says that what the layers below have under this path is gone.
    pub fn whiteout(&mut self, path: &[u8]) -> Result<(), UnpackError> {
        let whole = UnpackError::Refused("it says that everything is gone");
        let place = self.place(path)?.ok_or(whole)?;
        if let Some(inner) = self.directories.inner(place.directory, &place.name) {
            self.make_opaque(inner);
        }
        self.gone(place);
        Ok(())
    }

    /// Says that what the layers below have in this directory is gone.
    pub fn opaque(&mut self, path: &[u8]) -> Result<(), UnpackError> {
        let directory = match self.place(path)? {
            None => ROOT,
            Some(place) => match self.directories.inner(place.directory, &place.name) {
                Some(inner) => inner,
                None => self.implied(path)?,
            },
        };
        self.make_opaque(directory);
        Ok(())
    }

    /// Says that there is something at this path which no sandbox has: nothing is seen there.
    pub fn absent(&mut self, path: &[u8]) -> Result<(), UnpackError> {
        let Some(place) = self.place(path)? else { return Ok(()) };
        self.make_room(place.directory, &place.name)?;
        self.gone(place);
        Ok(())
    }

    /// The directory itself that a path names, as if something in it had been named.
    fn implied(&mut self, path: &[u8]) -> Result<usize, UnpackError> {
        let inside = [path, b"/x"].concat();
        Ok(self.place(&inside)?.map_or(ROOT, |place| place.directory))
    }

    fn make_opaque(&mut self, directory: usize) {
        if let Some(directory) = self.directories.get_mut(directory) {
            directory.opaque = true;
        }
    }

    fn gone(&mut self, place: Place) {
        if let Some(directory) = self.directories.get_mut(place.directory) {
            directory.gone.insert(place.name);
        }
    }

    /// Makes something that is no directory, in the place of whatever is there.
    fn put<T>(
        &mut self,
        path: &[u8],
        make: impl FnMut(BorrowedFd<'_>, &CString) -> Result<T, Errno>,
    ) -> Result<T, UnpackError> {
        let whole = UnpackError::Refused("it is in the place of the root directory");
        let place = self.place(path)?.ok_or(whole)?;
        self.put_at(&place, make)
    }

    fn put_at<T>(
        &mut self,
        place: &Place,
        mut make: impl FnMut(BorrowedFd<'_>, &CString) -> Result<T, Errno>,
    ) -> Result<T, UnpackError> {
        for _ in 0..TRIES {
            match make(self.directories.open(place.directory)?, &place.name) {
                Err(Errno::EXIST) => {
                    self.make_room(place.directory, &place.name)?;
                }
                result => return Ok(result?),
            }
        }
        Err(Errno::EXIST.into())
    }

    fn copy_up(&mut self, found: &Found, to: &Place) -> Result<u64, UnpackError> {
        let at = self.directories.open(to.directory)?;
        match found.kind() {
            FileType::RegularFile => {
                let from = found.open()?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let copy = openat(at, &to.name, flags, Mode::RUSR | Mode::WUSR)?;
                let mut content = Content::default();
                content.copy(&from, &copy, &found.stat, &AtomicBool::new(false))?;
                attributes::copy(&from, &copy, &found.stat)?;
                Ok(content.bytes)
            }
            FileType::Symlink => {
                symlinkat(&found.target()?, at, &to.name)?;
                let stat = &found.stat;
                let (user, group) = (stat.st_uid, stat.st_gid);
                let kept = Attributes::new(
                    user.checked_sub(self.owners.0),
                    group.checked_sub(self.owners.0),
                    0,
                    attributes::modified(stat),
                );
                own(at, &to.name, &kept, self.owners)?;
                Ok(0)
            }
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {
                Err(UnpackError::Refused("it is another name for something that is no file"))
            }
        }
    }
}

/// Gives owner and times to what cannot be opened.
fn own(
    at: BorrowedFd<'_>,
    name: &CString,
    attributes: &Attributes,
    owners: IdBase,
) -> Result<(), Errno> {
    let (user, group) = (attributes.user(owners), attributes.group(owners));
    chownat(at, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    utimensat(at, name, &attributes.times(), AtFlags::SYMLINK_NOFOLLOW)
}

/// A file of the layer whose content is still to come.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    attributes: Attributes,
    owners: IdBase,
    rights: Rights,
}

impl NewFile {
    /// Writes the next part.
    pub fn write(&mut self, content: &[u8]) -> io::Result<()> {
        self.file.write_all(content)
    }

    /// Writes a part that begins at `offset`.
    pub fn write_at(&mut self, content: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(content, offset)
    }

    /// Says how long the file is; what was not written is a hole.
    pub fn set_length(&mut self, length: u64) -> Result<(), UnpackError> {
        Ok(self.file.set_len(length)?)
    }

    /// Gives the file all but its content.
    pub fn finish(self) -> Result<(), UnpackError> {
        let file: OwnedFd = self.file.into();
        Ok(self.attributes.dress(file.as_fd(), self.owners, self.rights)?)
    }
}
