//! Content by its digest.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use osb_registry::{Descriptor, Digest, Verifier};
use osb_sys::fs::{self, PathError};

use super::{ImageError, Images, layout::Thing};

impl Images {
    /// Opens a blob, if it is here.
    pub fn blob(&self, digest: &Digest) -> Result<Option<File>, ImageError> {
        let thing = Thing::Blob(digest.clone());
        if !self.state().things.contains_key(&thing) {
            return Ok(None);
        }
        match fs::open(self.inner.layout.thing(&thing)) {
            Ok(file) => Ok(Some(file)),
            // It was collected at this moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives something that is whole its name.
    pub(super) fn establish(
        &self,
        thing: &Thing,
        made: &Path,
        bytes: u64,
    ) -> Result<(), ImageError> {
        let layout = &self.inner.layout;
        let disk = self.disk();
        if self.state().things.contains_key(thing) {
            // Somebody else was quicker.
            return fs::remove_file(made).map_err(ImageError::from);
        }
        self.inner.settler.expect(thing)?;
        fs::rename(made, layout.thing(thing))?;
        self.state().things.insert(thing.clone(), bytes);
        drop(disk);
        self.inner.settler.wake();
        Ok(())
    }
}

/// A blob that is being written. What is dropped before its end is gone on with later.
#[derive(Debug)]
pub struct Ingest {
    images: Images,
    wanted: Descriptor,
    file: File,
    path: PathBuf,
    /// Of what is written so far.
    verifier: Verifier,
    offset: u64,
    /// Whether others may go on with it.
    resumable: bool,
}

impl Ingest {
    /// Begins, or goes on with what is here of the blob. Only one can: who comes second begins anew.
    pub(super) fn begin(images: Images, wanted: &Descriptor) -> Result<Self, ImageError> {
        if !images.state().ingesting.insert(wanted.digest.clone()) {
            return Self::fresh(images, wanted);
        }
        let path = images.inner.layout.ingest(&wanted.digest);
        let opened = fs::read_and_write(&path, 0o600);
        let begun = opened.map_err(ImageError::from).and_then(|file| {
            let verifier = Verifier::new(wanted.digest.algorithm());
            let wanted = wanted.clone();
            let images = images.clone();
            let mut ingest =
                Self { images, wanted, file, path, verifier, offset: 0, resumable: true };
            ingest.catch_up()?;
            Ok(ingest)
        });
        if begun.is_err() {
            images.state().ingesting.remove(&wanted.digest);
        }
        begun
    }

    /// Begins anew, beside whoever else is at it.
    pub(super) fn fresh(images: Images, wanted: &Descriptor) -> Result<Self, ImageError> {
        let path = images.inner.layout.unfinished();
        let file = fs::create(&path, 0o600)?;
        let verifier = Verifier::new(wanted.digest.algorithm());
        let wanted = wanted.clone();
        Ok(Self { images, wanted, file, path, verifier, offset: 0, resumable: false })
    }

    /// How much of the blob is here: what is added belongs there.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn wanted(&self) -> &Descriptor {
        &self.wanted
    }

    /// Throws away what is here.
    pub fn restart(&mut self) -> Result<(), ImageError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|error| self.trouble("empty", error))?;
        self.verifier = Verifier::new(self.wanted.digest.algorithm());
        self.offset = 0;
        Ok(())
    }

    pub fn add(&mut self, content: &[u8]) -> Result<(), ImageError> {
        if self.offset + content.len() as u64 > self.wanted.size {
            let found = format!("more than {} bytes", self.wanted.size);
            self.restart()?;
            return Err(self.mismatch(found));
        }
        self.file.write_all(content).map_err(|error| self.trouble("write", error))?;
        self.verifier.update(content);
        self.offset += content.len() as u64;
        Ok(())
    }

    /// Checks the blob and gives it its name. One that is not what was asked for is thrown away.
    pub fn finish(mut self) -> Result<(), ImageError> {
        if self.offset != self.wanted.size {
            let found = format!("{} bytes", self.offset);
            return Err(self.mismatch(found));
        }
        let fresh = Verifier::new(self.wanted.digest.algorithm());
        let found = std::mem::replace(&mut self.verifier, fresh).finish();
        if found != self.wanted.digest {
            self.restart()?;
            return Err(self.mismatch(found.to_string()));
        }
        let thing = Thing::Blob(self.wanted.digest.clone());
        self.images.establish(&thing, &self.path, self.offset)
    }

    /// Hashes what is here from before.
    fn catch_up(&mut self) -> Result<(), ImageError> {
        let mut buffer = vec![0; 256 << 10];
        loop {
            let count = self.file.read(&mut buffer);
            let count = count.map_err(|error| self.trouble("read", error))?;
            if count == 0 {
                break;
            }
            self.verifier.update(buffer.get(..count).unwrap_or_default());
            self.offset += count as u64;
            if self.offset > self.wanted.size {
                return self.restart();
            }
        }
        Ok(())
    }

    fn mismatch(&self, found: String) -> ImageError {
        let wanted = format!("{} of {} bytes", self.wanted.digest, self.wanted.size);
        ImageError::Mismatch { wanted, found }
    }

    fn trouble(&self, doing: &'static str, error: io::Error) -> ImageError {
        PathError::new(doing, &self.path, error).into()
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        if self.resumable {
            // Before another one may begin with the same file.
            if self.offset == 0 {
                fs::remove_file(&self.path).ok();
            }
            self.images.state().ingesting.remove(&self.wanted.digest);
        } else {
            // It has its name by now, or is of no use.
            fs::remove_file(&self.path).ok();
        }
    }
}

impl Write for Ingest {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        self.add(content).map_err(io::Error::other)?;
        Ok(content.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
