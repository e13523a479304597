//! Blobs whose digest is known when they are written.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::PathBuf,
};

use osb_registry::{Algorithm, Descriptor, Verifier};
use osb_sys::fs::{self, PathError};

use super::{ImageError, Images, Intake, layout::Thing};

/// A blob that gets the name of what is written to it. Dropped before its end, it is gone.
#[derive(Debug)]
pub struct Draft<'a> {
    intake: &'a Intake,
    file: File,
    path: PathBuf,
    verifier: Verifier,
    size: u64,
}

impl Intake {
    /// Begins to write a blob of which nothing is known yet.
    pub fn draft(&self) -> Result<Draft<'_>, ImageError> {
        let path = self.images().unfinished();
        let file = fs::read_and_write(&path, 0o600)?;
        let verifier = Verifier::new(Algorithm::Sha256);
        Ok(Draft { intake: self, file, path, verifier, size: 0 })
    }
}

impl Draft<'_> {
    /// Copies all of `from`, which must not be longer than `limit`.
    pub fn fill(&mut self, mut from: impl Read, limit: u64) -> Result<(), ImageError> {
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(ImageError::Read(error)),
            };
            if self.size + count as u64 > limit {
                return Err(ImageError::Refused(format!(
                    "it is longer than {limit} bytes, which is the limit here"
                )));
            }
            self.add(buffer.get(..count).unwrap_or_default())?;
        }
    }

    pub fn add(&mut self, content: &[u8]) -> Result<(), ImageError> {
        let written = self.file.write_all(content);
        written.map_err(|error| PathError::new("write", &self.path, error))?;
        self.verifier.update(content);
        self.size += content.len() as u64;
        Ok(())
    }

    /// Opens what is written so far.
    pub fn reopen(&self) -> Result<File, ImageError> {
        Ok(fs::open(&self.path)?)
    }

    /// Gives the blob its name.
    pub fn finish(self, media_type: &str) -> Result<Descriptor, ImageError> {
        let digest = self.verifier.clone().finish();
        let descriptor = Descriptor::new(media_type, digest.clone(), self.size);
        let thing = Thing::Blob(digest);
        self.intake.hold(&thing);
        self.intake.images().establish(&thing, &self.path, self.size)?;
        Ok(descriptor)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // It has its name by now, or is of no use.
        fs::remove_file(&self.path).ok();
    }
}

impl Write for Draft<'_> {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        self.add(content).map_err(io::Error::other)?;
        Ok(content.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Images {
    fn unfinished(&self) -> PathBuf {
        self.inner.layout.unfinished()
    }
}
