//! What a sandbox uses.

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{RuntimeError, Usage, Used};
use rustix::fs::fstatvfs;

use super::Native;

#[async_trait]
impl Usage for Native {
    async fn usage(&self, id: SandboxId) -> Result<Used, RuntimeError> {
        self.up(id)?;
        let limited = self.entry(id).is_some_and(|entry| entry.state.disk.is_some());
        let (place, disks) = (self.place(id), self.inner.disks.clone());
        // A file system of its own has to be found, which may take a while.
        let look = move || {
            let used = place.group.usage()?;
            let disk = if limited {
                let room = fstatvfs(place.files(&disks)?.upper()?)?;
                Some(room.f_blocks.saturating_sub(room.f_bfree).saturating_mul(room.f_frsize))
            } else {
                None
            };
            Ok((used, disk))
        };
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            // It may have ended while we looked.
            match self.up(id) {
                Ok(_) => RuntimeError::failed("cannot tell what the sandbox uses", error),
                Err(absent) => absent,
            }
        };
        let looked = self.inner.tasks.spawn_blocking(look).await;
        let (used, disk) = looked.map_err(|error| failed(error.into()))?.map_err(failed)?;
        Ok(Used {
            cpu: used.cpu,
            memory: used.memory,
            memory_peak: used.memory_peak,
            processes: used.processes,
            disk,
        })
    }
}
