//! Stopping a sandbox where it stands, and letting it go on.

use std::io;

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{ObservedState, Pause, RuntimeError};

use super::Native;

#[async_trait]
impl Pause for Native {
    async fn pause(&self, id: SandboxId) -> Result<(), RuntimeError> {
        let turn = self.entry(id).ok_or(RuntimeError::NotFound(id))?.turn;
        // Whoever keeps its files has stopped it too, and lets it go on.
        let turn = turn.lock().await;
        self.up(id)?;
        let place = self.place(id);
        let failed = |error: io::Error| RuntimeError::failed("cannot pause the sandbox", error);
        place.group.freeze().map_err(|error| failed(io::Error::other(error)))?;
        let resting = place.clone();
        let resting = self.inner.tasks.spawn_blocking(move || resting.come_to_rest());
        if let Err(error) = resting.await.unwrap_or_else(|error| Err(error.into())) {
            place.group.thaw().map_err(|error| failed(io::Error::other(error)))?;
            return Err(failed(error));
        }
        self.tell(id, ObservedState::Paused);
        drop(turn);
        Ok(())
    }

    async fn resume(&self, id: SandboxId) -> Result<(), RuntimeError> {
        let turn = self.entry(id).ok_or(RuntimeError::NotFound(id))?.turn;
        let turn = turn.lock().await;
        self.up(id)?;
        let group = self.place(id).group;
        group.thaw().map_err(|error| RuntimeError::failed("cannot resume the sandbox", error))?;
        self.tell(id, ObservedState::Running);
        drop(turn);
        Ok(())
    }
}
