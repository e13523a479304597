//! What is written last: marks, and what a directory has beside its content.

use std::ffi::CString;

use rustix::{
    fs::{FileType, Mode, XattrFlags, fchmod, fsetxattr, mknodat},
    io::Errno,
};

use super::{Tree, UnpackError, below::opaque_mark, directories::ROOT};

impl Tree {
    /// Ends the layer: nothing of the archive comes after it.
    pub fn finish(mut self) -> Result<(), UnpackError> {
        if !self.describes_root {
            let below = self.below.as_ref().ok_or(UnpackError::Early)?;
            let attributes = below.attributes_of_root(self.owners)?;
            if let Some(root) = self.directories.get_mut(ROOT) {
                root.attributes = attributes;
            }
        }
        let present = self.directories.present();
        for number in &present {
            let Some(directory) = self.directories.get_mut(*number) else { continue };
            let (opaque, gone) = (directory.opaque, std::mem::take(&mut directory.gone));
            for name in gone {
                self.mark_gone(*number, &name)?;
            }
            if opaque {
                let mark = opaque_mark(self.rights);
                fsetxattr(self.directories.open(*number)?, mark, b"y", XattrFlags::empty())?;
            }
        }
        // Marks have changed the times of the directories they are in.
        for number in present {
            let Some(directory) = self.directories.get_mut(number) else { continue };
            let attributes = directory.attributes.clone();
            let open = self.directories.open(number)?;
            attributes.dress(open, self.owners, self.rights)?;
            // It was made as what was known of it then.
            fchmod(open, Mode::from_raw_mode(attributes.mode))?;
        }
        self.remove_replaced().map_err(|error| UnpackError::Io(std::io::Error::other(error)))
    }

    /// Marks a name as gone, unless the layer has something there or nothing is below to be hidden.
    fn mark_gone(&mut self, directory: usize, name: &CString) -> Result<(), UnpackError> {
        if self.below(directory, name)?.is_none() {
            return Ok(());
        }
        let at = self.directories.open(directory)?;
        match mknodat(at, name, FileType::CharacterDevice, Mode::empty(), 0) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
