//! The volumes of sandboxes, and those that are kept under a name.
//!
//! A sandbox is known as one that uses its volumes before they are looked up, and a volume loses
//! its name only while the known sandboxes are locked and none of them uses it. So no sandbox is
//! left with a volume that somebody removed meanwhile.

use std::{io, os::fd::OwnedFd, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{Chain, KeptVolume, RuntimeError, SandboxSpec, Volumes};
use osb_sys::fs::PathError;

use super::{Known, Native, clear::delete};
use crate::spawner::VolumePlan;

impl Native {
    /// Finds or makes the volumes of a sandbox that is known.
    pub(super) async fn find_volumes(
        &self,
        spec: &SandboxSpec,
    ) -> io::Result<(Vec<VolumePlan>, Vec<OwnedFd>)> {
        if spec.volumes.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let (sources, spec) = (self.inner.volumes.clone(), spec.clone());
        let found = self.inner.tasks.spawn_blocking(move || sources.prepare(&spec)).await?;
        found.map_err(io::Error::other)
    }

    /// Removes those of the volumes of a sandbox that is gone which were to go with the last one.
    pub(super) fn release_volumes(&self, known: &Known, spec: &SandboxSpec) {
        for name in spec.named_volumes() {
            if self.inner.volumes.named.is_ephemeral(name)
                && let Err(error) = self.discard_volume(known, name)
            {
                tracing::error!(error = %Chain(&error), "cannot remove a volume");
            }
        }
    }

    /// Removes the volumes that should have gone with a sandbox and that a crash has left.
    pub(super) fn sweep_volumes(&self) -> Result<(), PathError> {
        let known = self.known();
        for name in self.inner.volumes.named.names()? {
            if self.inner.volumes.named.is_ephemeral(&name) {
                self.discard_volume(&known, &name)?;
            }
        }
        Ok(())
    }

    /// Removes the volume unless a sandbox uses it.
    fn discard_volume(&self, known: &Known, name: &str) -> Result<Discarded, PathError> {
        let users = known.users(name);
        if !users.is_empty() {
            return Ok(Discarded::Used(users));
        }
        let removed = self.removed();
        let Some(aside) = self.inner.volumes.named.discard(name, &removed)? else {
            return Ok(Discarded::Absent);
        };
        self.delete_later(removed, aside);
        Ok(Discarded::Gone)
    }

    fn delete_later(&self, removed: PathBuf, aside: PathBuf) {
        self.inner.deletions.spawn_blocking(move || delete(&removed, &aside));
    }
}

/// What became of a volume that was to go.
enum Discarded {
    Gone,
    Absent,
    /// These sandboxes use it.
    Used(Vec<SandboxId>),
}

impl Known {
    /// The sandboxes that use a volume.
    fn users(&self, name: &str) -> Vec<SandboxId> {
        let using = self.sandboxes.iter().filter(|(_, entry)| entry.state.spec.uses_volume(name));
        let mut users: Vec<_> = using.map(|(id, _)| *id).collect();
        users.sort();
        users
    }
}

#[async_trait]
impl Volumes for Native {
    async fn list(&self) -> Result<Vec<KeptVolume>, RuntimeError> {
        let native = self.clone();
        let look = move || {
            let store = &native.inner.volumes.named;
            let kept = |name: String| {
                // One that went meanwhile is not there.
                let created_at = store.made_at(&name)?;
                let (ephemeral, used_by) = (store.is_ephemeral(&name), native.known().users(&name));
                Some(KeptVolume { name, ephemeral, used_by, created_at })
            };
            Ok::<_, PathError>(store.names()?.into_iter().filter_map(kept).collect())
        };
        let failed = |error: io::Error| RuntimeError::failed("cannot list the volumes", error);
        let listed = self.inner.tasks.spawn_blocking(look).await;
        listed
            .map_err(|error| failed(error.into()))?
            .map_err(|error| failed(io::Error::other(error)))
    }

    async fn sizes(&self, names: &[String]) -> Result<Vec<Option<u64>>, RuntimeError> {
        let turn = Arc::clone(&self.inner.measuring).lock_owned().await;
        let (store, names) = (self.inner.volumes.named.clone(), names.to_vec());
        let measure = move || {
            let sizes = store.sizes(&names);
            // Here, for the work goes on if its caller goes away.
            drop(turn);
            sizes
        };
        let failed = |error: io::Error| RuntimeError::failed("cannot measure the volumes", error);
        let measured = self.inner.tasks.spawn_blocking(measure).await;
        measured.map_err(|error| failed(error.into()))?.map_err(failed)
    }

    async fn measure(&self, name: &str) -> Result<Option<u64>, RuntimeError> {
        let turn = Arc::clone(&self.inner.measuring).lock_owned().await;
        let (store, name) = (self.inner.volumes.named.clone(), name.to_owned());
        let measure = move || {
            let size = store.size(&name);
            drop(turn);
            size
        };
        let failed = |error: io::Error| RuntimeError::failed("cannot measure the volume", error);
        let measured = self.inner.tasks.spawn_blocking(measure).await;
        measured.map_err(|error| failed(error.into()))?.map_err(failed)
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        let discarded = self.discard_volume(&self.known(), name);
        match discarded.map_err(|error| RuntimeError::failed("cannot remove the volume", error))? {
            Discarded::Gone => Ok(()),
            Discarded::Absent => Err(RuntimeError::no_volume(name)),
            Discarded::Used(users) => Err(RuntimeError::volume_in_use(name, &users)),
        }
    }
}
