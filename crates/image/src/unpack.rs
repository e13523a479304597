//! Layers from their blobs.
//!
//! ```text
//!  blob ──► decompress, hash, count ──► chunks ──► entries ──► files
//!           one thread                  few        another, which reaches
//!                                                  the layer's directory only
//! ```
//!
//! Few archives depend on the layers below before their end. So a layer can be unpacked beside those: what
//! is left then is done when they are there, and an archive that depends on them earlier is begun anew.

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
    unpack::{Foundation, Tree},
    userns::IdBase,
};

use self::chunks::{Chunks, Sender};
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
    /// It depends on layers below that are not there yet.
    #[error("the layers below are not there yet")]
    Early,
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

/// A layer of which everything is written that does not depend on those below.
#[derive(Debug)]
pub(crate) struct Ahead {
    tree: Tree,
    unpacked: Unpacked,
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
        let layers = copies(&foundation, around)?;
        // If the entries are wrong, the digest may still explain it.
        let never = AtomicBool::new(false);
        let decompress = |sender| self.decompress(blob, algorithm, sender, &never);
        let write = |chunks| write::write(self, chunks, around, foundation);
        let (digest, bytes) = both(around, &layers, decompress, write)?;
        Ok(Unpacked { digest, bytes })
    }

    /// Begins the same before the layers below are there. What fails may yet succeed with them.
    pub(crate) fn unpack_ahead(
        self,
        blob: File,
        algorithm: Algorithm,
        around: &Path,
    ) -> Result<Ahead, UnpackError> {
        let given_up = AtomicBool::new(false);
        let decompress = |sender| self.decompress(blob, algorithm, sender, &given_up);
        let write = |mut chunks: Chunks| {
            let written = write::write_entries(self, &mut chunks, around, None);
            given_up.store(written.is_err(), Ordering::Relaxed);
            written
        };
        let (digest, (tree, bytes)) = both(around, &[], decompress, write)?;
        Ok(Ahead { tree, unpacked: Unpacked { digest, bytes } })
    }

    /// Passes the content of a blob on, until its end or until nobody listens; then it is still
    /// hashed to the end, unless the layer is given up.
    fn decompress(
        self,
        blob: File,
        algorithm: Algorithm,
        sender: Sender,
        given_up: &AtomicBool,
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
            if given_up.load(Ordering::Relaxed) {
                return Err(UnpackError::Early);
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

impl Ahead {
    /// Ends the layer in `around`, now that those below are there.
    pub(crate) fn finish(
        self,
        around: &Path,
        foundation: Foundation,
    ) -> Result<Unpacked, UnpackError> {
        let Self { mut tree, unpacked } = self;
        let layers = copies(&foundation, around)?;
        tree.found(foundation);
        confine(around, &layers, || write::finish(tree))?;
        Ok(unpacked)
    }
}

/// Decompresses a blob, and beside that writes what comes of it on a thread that can reach `around`
/// and read `layers`.
fn both<T: Send>(
    around: &Path,
    layers: &[OwnedFd],
    decompress: impl FnOnce(Sender) -> Result<Digest, UnpackError> + Send,
    write: impl FnOnce(Chunks) -> Result<T, UnpackError> + Send,
) -> Result<(Digest, T), UnpackError> {
    let (sender, chunks) = chunks::channel();
    thread::scope(|scope| {
        let decompress = thread::Builder::new()
            .name("decompress".to_owned())
            .spawn_scoped(scope, move || decompress(sender))
            .map_err(|source| cannot_open(around, source))?;
        let written = confine(around, layers, || write(chunks));
        let hashed = decompress
            .join()
            .map_err(|_| UnpackError::Layer("it made the decompression panic".to_owned()))?;
        // What was wrong with the blob explains what was wrong with the entries.
        Ok((hashed?, written?))
    })
}

/// Runs `work` on a thread that can reach `around`, and read `layers`.
fn confine<T: Send>(
    around: &Path,
    layers: &[OwnedFd],
    work: impl FnOnce() -> Result<T, UnpackError> + Send,
) -> Result<T, UnpackError> {
    let directory = fs::open(around).map_err(UnpackError::Prepare)?;
    let read: Vec<_> = layers.iter().map(AsFd::as_fd).collect();
    let done = confined::run_reading(&[directory.as_fd()], &read, work);
    done.map_err(|source| cannot_open(around, source))?
}

fn copies(foundation: &Foundation, around: &Path) -> Result<Vec<OwnedFd>, UnpackError> {
    let copies = foundation.directories().map(OwnedFd::try_clone).collect::<Result<_, _>>();
    copies.map_err(|source| cannot_open(around, source))
}

fn cannot_open(around: &Path, source: io::Error) -> UnpackError {
    UnpackError::Prepare(PathError::new("open", around, source))
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
