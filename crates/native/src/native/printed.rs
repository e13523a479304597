//! What a sandbox printed.

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{Printed, RuntimeError};

use super::Native;

#[async_trait]
impl Printed for Native {
    async fn printed(&self, id: SandboxId) -> Result<Vec<u8>, RuntimeError> {
        let entry = self.entry(id).ok_or(RuntimeError::NotFound(id))?;
        let failed = |error| RuntimeError::failed("cannot read what the sandbox printed", error);
        // Nobody removes it meanwhile: a file system of its own may have to be opened.
        let _turn = entry.turn.lock().await;
        if self.entry(id).is_none() {
            return Err(RuntimeError::NotFound(id));
        }
        let (place, disks) = (self.place(id), self.inner.disks.clone());
        let reading = self.inner.tasks.spawn_blocking(move || place.printed(&disks));
        reading.await.map_err(|error| failed(error.into()))?.map_err(failed)
    }
}
