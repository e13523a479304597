//! Keeping the files of a sandbox, and starting others with them.

use std::{io, os::fd::AsFd, sync::atomic::AtomicBool};

use async_trait::async_trait;
use osb_api::{SandboxId, SnapshotId};
use osb_core::{Chain, Kept, RuntimeError, SandboxSpec, Snapshots};
use osb_image::{Image, Rootfs};
use osb_sys::{confined, layer};

use super::{Native, clear::delete, images};
use crate::{
    sandbox::{Place, State},
    shelf::Label,
};

/// How many snapshots may be made at once: each keeps a disk busy and a sandbox still.
pub(super) const AT_ONCE: usize = 4;
/// How many snapshots one may stand on. Each is a layer of the overlay, and the names of all
/// layers share the 255 bytes that a mount option has.
const DEEPEST: usize = 48;

#[async_trait]
impl Snapshots for Native {
    async fn take(&self, sandbox: SandboxId, id: SnapshotId) -> Result<Kept, RuntimeError> {
        let entry = self.entry(sandbox).ok_or(RuntimeError::NotFound(sandbox))?;
        let native = self.clone();
        // In a task of its own: a caller that goes away must not leave it half made.
        let taking = self.inner.tasks.spawn(async move {
            let failed = |error| RuntimeError::failed("cannot begin the snapshot", error);
            let permit = native.inner.snapshots.acquire().await;
            let permit = permit.map_err(|error| failed(io::Error::other(error)))?;
            // Nobody removes, pauses or resumes it meanwhile.
            let turn = entry.turn.lock().await;
            native.up(sandbox)?;
            let (ours, leaving) = (native.clone(), entry.leaving.clone());
            let work = move || ours.keep(&entry.state, id, &leaving);
            let kept = native.inner.tasks.spawn_blocking(work).await;
            drop((turn, permit));
            kept.map_err(|error| failed(io::Error::from(error)))?
        });
        taking.await.map_err(|error| RuntimeError::failed("cannot take the snapshot", error))?
    }

    async fn delete(&self, id: SnapshotId) -> Result<(), RuntimeError> {
        let failed = |error| RuntimeError::failed("cannot delete the snapshot", error);
        self.inner.shelf.delete(id).map_err(failed)?;
        self.clear_shelf();
        Ok(())
    }

    async fn kept(&self) -> Result<Vec<Kept>, RuntimeError> {
        let kept = self.inner.shelf.kept();
        kept.map_err(|error| RuntimeError::failed("cannot list the snapshots", error))
    }
}

impl Native {
    /// Puts the layers of the snapshot that a sandbox starts from on top of those of its image.
    pub(super) fn stack(&self, spec: &SandboxSpec, image: &Image) -> Result<Rootfs, RuntimeError> {
        let mut rootfs = self.ground(image);
        let Some(id) = spec.snapshot else { return Ok(rootfs) };
        let label = self.inner.shelf.find(id);
        let label = label.map_err(|error| RuntimeError::failed("cannot find the snapshot", error));
        let label = label?.ok_or(RuntimeError::UnknownSnapshot(id))?;
        let stands_on = images::digest(image);
        // Those from before there were others stand on the one that has none.
        let is_same =
            label.digest == stands_on && (stands_on.is_some() || label.image == spec.image);
        if !is_same {
            return Err(RuntimeError::Invalid(format!(
                "snapshot {id} stands on another image than {}: it was taken on {}",
                spec.image, label.image
            )));
        }
        let layers = [id].into_iter().chain(label.below).map(|id| self.inner.shelf.layer(id));
        rootfs.layers.splice(0..0, layers);
        Ok(rootfs)
    }

    /// Clears away deleted snapshots that nothing stands on.
    pub(super) fn clear_shelf(&self) {
        let (native, removed) = (self.clone(), self.removed());
        self.inner.deletions.spawn_blocking(move || {
            // The sandboxes first: one that goes after that has left its snapshots on the shelf,
            // and one that comes after that finds those marked that are cleared.
            let used =
                native.known().sandboxes.values().filter_map(|e| e.state.spec.snapshot).collect();
            match native.inner.shelf.clear(&used, &removed) {
                Ok(moved) => moved.iter().for_each(|path| delete(&removed, path)),
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "cannot clear away deleted snapshots");
                }
            }
        });
    }

    fn keep(
        &self,
        state: &State,
        id: SnapshotId,
        leaving: &AtomicBool,
    ) -> Result<Kept, RuntimeError> {
        let snapshots = &self.inner.shelf;
        let failed = |error| RuntimeError::failed("cannot read the snapshots", error);
        if let Some(label) = snapshots.find(id).map_err(failed)? {
            return Ok(Kept { id, bytes: label.bytes });
        }
        let mut below: Vec<SnapshotId> = state.spec.snapshot.into_iter().collect();
        if let Some(nearest) = below.first() {
            let label = snapshots.label(*nearest).map_err(failed)?;
            below.extend(label.ok_or(RuntimeError::UnknownSnapshot(*nearest))?.below);
        }
        if below.len() >= DEEPEST {
            return Err(RuntimeError::Invalid(format!(
                "the sandbox stands on {DEEPEST} snapshots, the most there may be below one: \
                 start afresh from an image"
            )));
        }
        let place = self.place(state.spec.id);
        let label = self.copy(&place, state, id, leaving).and_then(|bytes| {
            let (image, digest) = (state.spec.image.clone(), state.image.clone());
            let label = Label { image, digest, below, bytes };
            snapshots.finish(id, &label).map_err(io::Error::other)?;
            Ok(label)
        });
        match label {
            Ok(label) => Ok(Kept { id, bytes: label.bytes }),
            Err(error) => {
                let removed = self.removed();
                match snapshots.abandon(id, &removed) {
                    Ok(Some(aside)) => delete(&removed, &aside),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(error = %Chain(&error), "cannot clear away a snapshot that failed");
                    }
                }
                Err(RuntimeError::failed("cannot keep the files of the sandbox", error))
            }
        }
    }

    /// Copies what the sandbox wrote, while nothing in it moves.
    fn copy(
        &self,
        place: &Place,
        state: &State,
        id: SnapshotId,
        leaving: &AtomicBool,
    ) -> io::Result<u64> {
        let aside = self.inner.shelf.begin(id).map_err(io::Error::other)?;
        let into = osb_sys::fs::open(&aside).map_err(io::Error::other)?;
        let own = place.files(&self.inner.disks).map_err(io::Error::other)?.upper()?;
        let still = place.hold_still()?;
        let copied = confined::run_within(&[own.as_fd(), into.as_fd()], || {
            layer::copy(own.as_fd(), &aside, state.base, self.inner.rights, leaving)
        })??;
        drop(still);
        Ok(copied.bytes)
    }
}
