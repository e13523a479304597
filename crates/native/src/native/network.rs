//! The outlets of sandboxes: where everything arrives that they send.
//!
//! They are opened with the network namespace and kept here until somebody asks. Whoever asks
//! again, or after a restart, gets others, opened in the namespace of the running sandbox.

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{Network, Outlets, RuntimeError};
use osb_sys::outlets;

use super::Native;

impl Native {
    /// Keeps the outlets of a sandbox that is known, until they are asked for.
    pub(super) fn keep_outlets(&self, id: SandboxId, outlets: Option<outlets::Outlets>) {
        let mut known = self.known();
        if let Some(outlets) = outlets.filter(|_| known.sandboxes.contains_key(&id)) {
            known.outlets.insert(id, outlets);
        }
    }
}

#[async_trait]
impl Network for Native {
    async fn outlets(&self, id: SandboxId) -> Result<Outlets, RuntimeError> {
        let pidfd = self.up(id)?;
        let kept = self.known().outlets.remove(&id);
        let outlets = if let Some(outlets) = kept {
            Ok(outlets)
        } else {
            let sockets = self.inner.sockets.clone();
            let opening = move || sockets.outlets(&pidfd);
            self.inner.tasks.spawn_blocking(opening).await.unwrap_or_else(|end| Err(end.into()))
        };
        let failed = |error| RuntimeError::failed("cannot answer for the sandbox's network", error);
        let outlets::Outlets { streams, datagrams, answers } = outlets.map_err(failed)?;
        Ok(Outlets { streams, datagrams, answers })
    }
}
