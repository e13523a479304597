//! `ADD` of archives.

use std::{
    fs::File,
    io::{self, Write},
};

use osb_image::{Contained, Entry, Kind, Limits, Parcel, ParcelError, What};

use super::{
    TransferError,
    write::{Layering, Target, check_name},
};
use crate::problem::Fault;

impl<W: Write> Layering<'_, W> {
    /// Unpacks an archive into the target.
    pub(crate) fn unpack(
        &mut self,
        name: &str,
        file: File,
        target: &Target,
    ) -> Result<(), TransferError> {
        let wrong = |error| match error {
            ParcelError::Refused(why) => {
                Fault::new(format!("{name} cannot be unpacked: {why}")).into()
            }
            ParcelError::Io(source) => TransferError::Read { path: name.into(), source },
        };
        self.make_way(target.path())?;
        let opened = Parcel::open(file, Limits::default());
        let mut parcel = opened.map_err(|error| wrong(ParcelError::Io(error)))?;
        while let Some(piece) = parcel.piece().map_err(wrong)? {
            let path = target.path().join(&piece.path);
            if piece.path.as_os_str().is_empty() {
                continue;
            }
            check_name(&piece.path)?;
            if let Some(around) = path.parent() {
                self.make_way(around)?;
            }
            let linked;
            let what = match &piece.what {
                Contained::File { size } => What::File { size: *size },
                Contained::Directory => What::Directory,
                Contained::Symlink(to) => What::Symlink(to),
                Contained::Link(to) => {
                    linked = target.path().join(to);
                    What::Link(&linked)
                }
                Contained::Fifo => What::Fifo,
                Contained::Device => {
                    return Err(Fault::new(format!(
                        "{name} has the device {}, which images do not have here",
                        piece.path.display()
                    ))
                    .into());
                }
            };
            let is_directory = what == What::Directory;
            self.make_room(&path, if is_directory { Kind::Directory } else { Kind::File })?;
            let (user, group) = self.owner.unwrap_or((piece.user, piece.group));
            let mode = match &self.mode {
                Some(chmod) => chmod.apply(piece.mode, is_directory),
                None => piece.mode,
            };
            let modified = self.time(piece.modified);
            let extended = &piece.extended;
            let entry = Entry { path: &path, what, mode, user, group, modified, extended };
            if let What::File { size } = what {
                self.add(&entry, parcel.content())?;
                self.written.bytes += size;
            } else {
                self.add(&entry, io::empty())?;
            }
            if is_directory {
                self.note_directory(&path);
            }
        }
        Ok(())
    }
}
