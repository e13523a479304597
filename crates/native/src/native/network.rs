//! The outlets of sandboxes: where everything arrives that they send.
//!
//! They are opened with the network namespace and kept here until somebody asks. Whoever asks
//! again, or after a restart, gets others, opened in the namespace of the running sandbox.

use std::{io, os::fd::OwnedFd, sync::Arc, time::Duration};

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{Network, Outlets, RuntimeError};
use osb_sys::outlets;
use tokio::time::{Instant, sleep};

use super::Native;

/// How long those before may still be there: they are gone once the last who had them has closed them, be
/// it the spawner, which has just handed them over, or a server that is ending.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often to look.
const LOOK: Duration = Duration::from_millis(5);

impl Native {
    /// Keeps the outlets of a sandbox that is known, until they are asked for.
    pub(super) fn keep_outlets(&self, id: SandboxId, outlets: Option<outlets::Outlets>) {
        let mut known = self.known();
        if let Some(outlets) = outlets.filter(|_| known.sandboxes.contains_key(&id)) {
            known.outlets.insert(id, outlets);
        }
    }

    /// Opens outlets in the namespace of a running sandbox.
    async fn open_outlets(&self, pidfd: &Arc<OwnedFd>) -> io::Result<outlets::Outlets> {
        let patience = Instant::now() + PATIENCE;
        loop {
            let (sockets, pidfd) = (self.inner.sockets.clone(), Arc::clone(pidfd));
            let opening = self.inner.tasks.spawn_blocking(move || sockets.outlets(&pidfd));
            match opening.await.unwrap_or_else(|end| Err(end.into())) {
                Err(error) if is_held(&error) && Instant::now() < patience => sleep(LOOK).await,
                opened => return opened,
            }
        }
    }
}

/// Whether there are outlets already.
fn is_held(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

#[async_trait]
impl Network for Native {
    async fn outlets(&self, id: SandboxId) -> Result<Outlets, RuntimeError> {
        let pidfd = self.up(id)?;
        let kept = self.known().outlets.remove(&id);
        let outlets = match kept {
            Some(outlets) => Ok(outlets),
            None => self.open_outlets(&pidfd).await,
        };
        let failed = |error| RuntimeError::failed("cannot answer for the sandbox's network", error);
        let outlets::Outlets { streams, datagrams, answers } = outlets.map_err(failed)?;
        Ok(Outlets { streams, datagrams, answers })
    }
}
