//! Layers from their blobs.
//!
//! ```text
//!  blob ──► decompress, hash, count ──► chunks ──► entries ──► files
//!           one thread                  few        another, which reaches
//!                                                  the layer's directory only
//! ```

mod chunks;
mod write;

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use osb_registry::{Algorithm, Digest, Verifier};
use osb_sys::{
    confined,
    fs::{self, PathError},
    rootless::Rights,
    unpack::Foundation,
    userns::IdBase,
};

use self::chunks::Sender;
#[cfg(feature = "fuzzing")]
pub(crate) use self::write::write;
use crate::{Limits, compression};

/// Why a blob did not become a layer.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The layer is at fault, or somebody who built it.
    #[error("entry {entry:?} of the layer is refused: {why}")]
    Entry { entry: String, why: String },
    #[error("the layer is refused: {0}")]
    Layer(String),
    /// It is more than the operator lets an image be.
    #[error("the layer is refused: {0}, which is the limit here")]
    Limit(String),
    #[error("the layer unpacks to {found}, and the image's configuration says {wanted}")]
    Digest { wanted: Digest, found: Digest },
    /// The disk is at fault.
    #[error("cannot write {entry:?} of the layer")]
    Disk {
        entry: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot prepare the layer")]
    Prepare(#[source] PathError),
}

/// What a layer came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// Of the archive, not compressed.
    pub(crate) digest: Digest,
    /// The content of its files.
    pub(crate) bytes: u64,
}

/// Where and for whom layers are unpacked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unpacker<'a> {
    pub(crate) owners: IdBase,
    pub(crate) rights: Rights,
    pub(crate) limits: &'a Limits,
    pub(crate) stop: &'a AtomicBool,
}

impl Unpacker<'_> {
    /// Unpacks `blob` to the directory `files` in `around`, which is empty.
    pub(crate) fn unpack(
        self,
        blob: File,
        algorithm: Algorithm,
        around: &Path,
        foundation: Foundation,
    ) -> Result<Unpacked, UnpackError> {
        let directory = fs::open(around).map_err(UnpackError::Prepare)?;
        let prepare = |source| UnpackError::Prepare(PathError::new("open", around, source));
        let layers: Vec<_> = foundation
            .directories()
            .map(OwnedFd::try_clone)
            .collect::<Result<_, _>>()
            .map_err(prepare)?;
        let read: Vec<_> = layers.iter().map(AsFd::as_fd).collect();
        let (sender, chunks) = chunks::channel();
        thread::scope(|scope| {
            let decompress = thread::Builder::new()
                .name("decompress".to_owned())
                .spawn_scoped(scope, move || self.decompress(blob, algorithm, sender))
                .map_err(prepare)?;
            let written = confined::run_reading(&[directory.as_fd()], &read, || {
                write::write(self, chunks, around, foundation)
            });
            let hashed = decompress
                .join()
                .map_err(|_| UnpackError::Layer("it made the decompression panic".to_owned()))?;
            // What was wrong with the blob explains what was wrong with the entries.
            let digest = hashed?;
            Ok(Unpacked { digest, bytes: written.map_err(prepare)?? })
        })
    }

    /// Passes the content of a blob on, until its end or until nobody listens; then it is still
    /// hashed to the end.
    fn decompress(
        self,
        blob: File,
        algorithm: Algorithm,
        sender: Sender,
    ) -> Result<Digest, UnpackError> {
        let read = |source: io::Error| {
            if source.raw_os_error().is_some() {
                UnpackError::Disk { entry: "the blob".to_owned(), source }
            } else {
                UnpackError::Layer(format!("it cannot be decompressed: {source}"))
            }
        };
        let mut input = compression::open(blob).map_err(read)?;
        let mut verifier = Verifier::new(algorithm);
        let mut sender = Some(sender);
        let mut unsent = Vec::new();
        let mut bytes = 0;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(UnpackError::Layer("the work was broken off".to_owned()));
            }
            let mut chunk = match &sender {
                Some(sender) => sender.empty_chunk(),
                None => std::mem::take(&mut unsent),
            };
            chunk.resize(chunks::SIZE, 0);
            let count = fill(&mut input, &mut chunk).map_err(read)?;
            chunk.truncate(count);
            if count == 0 {
                return Ok(verifier.finish());
            }
            verifier.update(&chunk);
            bytes += count as u64;
            self.check(bytes, input.input().get_ref().bytes)?;
            match sender.take() {
                // Whoever writes says himself why he has stopped.
                Some(listened) => sender = listened.send(chunk).then_some(listened),
                None => unsent = chunk,
            }
        }
    }

    fn check(self, bytes: u64, compressed: u64) -> Result<(), UnpackError> {
        let limits = self.limits;
        if bytes > limits.layer {
            return Err(UnpackError::Limit(format!(
                "it unpacks to more than {} bytes",
                limits.layer
            )));
        }
        if bytes > limits.unproven && bytes / limits.ratio.max(1) > compressed {
            return Err(UnpackError::Limit(format!(
                "it unpacks to more than {} times its size",
                limits.ratio
            )));
        }
        Ok(())
    }
}

/// Reads until the buffer is full or nothing is left.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod stacked;
#[cfg(test)]
mod tests;
