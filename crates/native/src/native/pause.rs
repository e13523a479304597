//! Stopping a sandbox where it stands, and letting it go on.

use std::{io, time::Duration};

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{ObservedState, Pause, RuntimeError};
use tokio::time::Instant;

use super::Native;

/// How long processes may take to stop.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look whether they have.
const LOOK: Duration = Duration::from_millis(1);

#[async_trait]
impl Pause for Native {
    async fn pause(&self, id: SandboxId) -> Result<(), RuntimeError> {
        let turn = self.entry(id).ok_or(RuntimeError::NotFound(id))?.turn;
        // Whoever keeps its files has stopped it too, and lets it go on.
        let turn = turn.lock().await;
        self.up(id)?;
        let group = self.place(id).group;
        let failed = |error| RuntimeError::failed("cannot pause the sandbox", error);
        group.freeze().map_err(|error| failed(io::Error::other(error)))?;
        let deadline = Instant::now() + PATIENCE;
        // The kernel stops processes one by one, when each comes by, and under version 1 it tells
        // nobody when it is done.
        while !group.is_still() {
            if Instant::now() > deadline {
                group.thaw().map_err(|error| failed(io::Error::other(error)))?;
                return Err(failed(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "one of its processes waits for a disk or a network file system and cannot \
                     be stopped",
                )));
            }
            tokio::time::sleep(LOOK).await;
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
