//! One blob, from a registry to the disk.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use osb_registry::{Descriptor, Digest, Repository};
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
};

use super::{PullProgress, RemoteError, flights::Flights};
use crate::{ImageError, Ingest, Intake};

/// How many pieces wait to be written. The longest have 256 KiB.
const WAITING: usize = 8;
/// How much arrives before somebody is told.
const STEP: u64 = 512 << 10;

/// What blobs of one image are fetched with.
pub(super) struct Fetcher<'a> {
    pub(super) intake: &'a Arc<Intake>,
    pub(super) repository: &'a Repository,
    pub(super) flights: &'a Flights,
    pub(super) progress: &'a watch::Sender<PullProgress>,
}

impl Fetcher<'_> {
    /// Makes sure that a blob is here, and is what it should be. Then it is told to those who wait.
    pub(super) async fn fetch(
        &self,
        wanted: &Descriptor,
        downloaded: &watch::Sender<BTreeSet<Digest>>,
    ) -> Result<(), RemoteError> {
        let registry = self.repository.reference().registry();
        let _turn = self.flights.turn(registry, &wanted.digest).await;
        if !self.intake.has(&wanted.digest) {
            while !self.attempt(wanted).await? {}
        }
        self.progress.send_modify(|progress| progress.arrived(&wanted.digest, wanted.size));
        downloaded.send_if_modified(|downloaded| downloaded.insert(wanted.digest.clone()));
        Ok(())
    }

    /// Whether the blob is here now. If not, there is a reason to try again.
    async fn attempt(&self, wanted: &Descriptor) -> Result<bool, RemoteError> {
        let (intake, descriptor) = (Arc::clone(self.intake), wanted.clone());
        let ingest = spawn_blocking(move || intake.begin_blob(&descriptor)).await??;
        let begun = ingest.offset();
        let mut blob = self.repository.blob(wanted, begun).await?;
        let (send, pieces) = mpsc::channel(WAITING);
        let writing = spawn_blocking(move || write(ingest, pieces));
        let mut told = begun;
        loop {
            let piece = match blob.next().await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => {
                    // What came before is written, and gone on with another time.
                    drop(send);
                    writing.await??;
                    return Err(error.into());
                }
            };
            // Whoever has stopped writing says why below.
            if send.send(piece).await.is_err() {
                break;
            }
            if blob.offset() - told >= STEP {
                told = blob.offset();
                self.progress.send_modify(|progress| progress.arrived(&wanted.digest, told));
            }
        }
        drop(send);
        match writing.await? {
            Ok(()) => Ok(true),
            // What was here before may have been wrong: once more, from the beginning.
            Err(ImageError::Mismatch { .. }) if begun > 0 => Ok(false),
            Err(ImageError::Mismatch { .. }) => {
                blob.distrust()?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes what comes. Once all of it has come, it is checked and gets its name.
fn write(mut ingest: Ingest, mut pieces: mpsc::Receiver<Bytes>) -> Result<(), ImageError> {
    while let Some(piece) = pieces.blocking_recv() {
        ingest.add(&piece)?;
    }
    if ingest.offset() == ingest.wanted().size { ingest.finish() } else { Ok(()) }
}
