//! Volumes that are but names.

use std::{collections::btree_map::Entry, time::SystemTime};

use async_trait::async_trait;

use super::{FakeRuntime, State};
use crate::{KeptVolume, RuntimeError, SandboxSpec, VolumeSource, Volumes};

impl State {
    /// Finds or makes the volumes that a new sandbox asks for.
    pub(super) fn find_volumes(&mut self, spec: &SandboxSpec) -> Result<(), RuntimeError> {
        for volume in &spec.volumes {
            let VolumeSource::Named { name, create, ephemeral } = &volume.source else { continue };
            match self.volumes.entry(name.clone()) {
                Entry::Occupied(_) => {}
                Entry::Vacant(place) if *create => {
                    place.insert(*ephemeral);
                }
                Entry::Vacant(_) => {
                    return Err(RuntimeError::no_volume(name));
                }
            }
        }
        Ok(())
    }

    /// Drops the volumes that nobody uses any more and that were to go then.
    pub(super) fn release_volumes(&mut self) {
        let sandboxes = &self.sandboxes;
        let is_used = |name: &str| {
            let mut specs = sandboxes.values().filter_map(|sandbox| sandbox.spec.as_ref());
            specs.any(|spec| spec.uses_volume(name))
        };
        self.volumes.retain(|name, ephemeral| !*ephemeral || is_used(name));
    }
}

#[async_trait]
impl Volumes for FakeRuntime {
    async fn list(&self) -> Result<Vec<KeptVolume>, RuntimeError> {
        let state = self.state();
        let users = |name: &str| {
            let uses = state.sandboxes.iter().filter(|(_, sandbox)| {
                sandbox.spec.as_ref().is_some_and(|spec| spec.uses_volume(name))
            });
            uses.map(|(id, _)| *id).collect()
        };
        let kept = state.volumes.iter().map(|(name, ephemeral)| KeptVolume {
            name: name.clone(),
            ephemeral: *ephemeral,
            used_by: users(name),
            created_at: SystemTime::UNIX_EPOCH,
        });
        Ok(kept.collect())
    }

    async fn sizes(&self, names: &[String]) -> Result<Vec<Option<u64>>, RuntimeError> {
        let state = self.state();
        Ok(names.iter().map(|name| state.volumes.contains_key(name).then_some(4096)).collect())
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        let listed = Volumes::list(self).await?;
        let volume = listed.iter().find(|volume| volume.name == name);
        let volume = volume.ok_or_else(|| RuntimeError::no_volume(name))?;
        if !volume.used_by.is_empty() {
            return Err(RuntimeError::volume_in_use(name, &volume.used_by));
        }
        self.state().volumes.remove(name);
        Ok(())
    }
}
