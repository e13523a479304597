use std::path::PathBuf;

use osb_core::ImageName;
use osb_sys::{
    fs::{self, PathError},
    userns::IdBase,
};

use crate::{Rootfs, host};

/// The images on this machine.
#[derive(Debug, Clone)]
pub struct Images {
    host: Rootfs,
}

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The client must ask for another image.
    #[error("image {0} is not known here: use host, which is the programs of this host")]
    Unknown(ImageName),
    /// The store's own files are in trouble.
    #[error("cannot prepare the images")]
    Store(#[source] PathError),
}

impl Images {
    /// Opens the store in `directory`, and makes it if it is new. The owners of files in its layers
    /// are counted from `owners`.
    pub fn open(directory: impl Into<PathBuf>, owners: IdBase) -> Result<Self, ImageError> {
        let directory = directory.into();
        fs::create_dir_all(&directory).map_err(ImageError::Store)?;
        let host = host::prepare(&directory.join("host"), owners).map_err(ImageError::Store)?;
        Ok(Self { host })
    }

    /// What the image of this name is made of.
    pub fn find(&self, name: &ImageName) -> Result<&Rootfs, ImageError> {
        match name.as_str() {
            "host" => Ok(&self.host),
            _ => Err(ImageError::Unknown(name.clone())),
        }
    }
}
