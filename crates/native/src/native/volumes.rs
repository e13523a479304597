//! The volumes of sandboxes, and those that are kept under a name.
//!
//! A sandbox is known as one that uses its volumes before they are looked up, and a volume loses
//! its name only while the known sandboxes are locked and none of them uses it. So no sandbox is
//! left with a volume that somebody removed meanwhile.

use std::{io, os::fd::OwnedFd, path::PathBuf};

use async_trait::async_trait;
use osb_core::{Chain, KeptVolume, RuntimeError, SandboxSpec, VolumeProblem, Volumes};
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

    /// Removes the volume unless a sandbox uses it. Whether nobody does.
    fn discard_volume(&self, known: &Known, name: &str) -> Result<bool, PathError> {
        if known.sandboxes.values().any(|entry| entry.state.spec.uses_volume(name)) {
            return Ok(false);
        }
        let removed = self.removed();
        if let Some(aside) = self.inner.volumes.named.discard(name, &removed)? {
            self.delete_later(removed, aside);
        }
        Ok(true)
    }

    fn delete_later(&self, removed: PathBuf, aside: PathBuf) {
        self.inner.deletions.spawn_blocking(move || delete(&removed, &aside));
    }
}

#[async_trait]
impl Volumes for Native {
    async fn list(&self) -> Result<Vec<KeptVolume>, RuntimeError> {
        let store = &self.inner.volumes.named;
        let names = store
            .names()
            .map_err(|error| RuntimeError::failed("cannot list the volumes", error))?;
        let kept = |name: String| {
            let known = self.known();
            let users = known.sandboxes.iter().filter(|(_, e)| e.state.spec.uses_volume(&name));
            let mut used_by: Vec<_> = users.map(|(id, _)| *id).collect();
            used_by.sort();
            KeptVolume { ephemeral: store.is_ephemeral(&name), name, used_by }
        };
        Ok(names.into_iter().map(kept).collect())
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        let gone = self.discard_volume(&self.known(), name);
        if gone.map_err(|error| RuntimeError::failed("cannot remove the volume", error))? {
            return Ok(());
        }
        Err(RuntimeError::Volume {
            problem: VolumeProblem::InUse,
            message: format!("the volume {name:?} is used by a sandbox: remove that first"),
        })
    }
}
