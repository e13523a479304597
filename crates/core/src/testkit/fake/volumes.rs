//! Volumes that are but names.

use std::collections::btree_map::Entry;

use async_trait::async_trait;

use super::{FakeRuntime, State};
use crate::{KeptVolume, RuntimeError, SandboxSpec, VolumeProblem, VolumeSource, Volumes};

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
                    return Err(RuntimeError::Volume {
                        problem: VolumeProblem::NotFound,
                        message: format!("there is no volume {name:?}"),
                    });
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
        });
        Ok(kept.collect())
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        let in_use = |volume: &KeptVolume| volume.name == name && !volume.used_by.is_empty();
        if Volumes::list(self).await?.iter().any(in_use) {
            return Err(RuntimeError::Volume {
                problem: VolumeProblem::InUse,
                message: format!("the volume {name:?} is used by a sandbox"),
            });
        }
        self.state().volumes.remove(name);
        Ok(())
    }
}
