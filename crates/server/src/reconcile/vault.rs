//! The credentials of sandboxes, which go when the sandboxes do.

use std::{io, sync::Arc};

use osb_api::SandboxId;
use osb_core::Chain;
use osb_egress::{
    Name, Policy, Verdict,
    vault::{Vault, VaultError},
};
use tokio::task::JoinError;

use super::{Reconciler, Shared};

impl Reconciler {
    /// What a sandbox must trust so that its requests can be given credentials, as PEM.
    pub(crate) fn authority(&self, id: SandboxId) -> io::Result<String> {
        self.0.outbound.egress.authority(id)
    }

    /// The vault of a sandbox, which may yet have to be made.
    pub(crate) fn vault(&self, id: SandboxId) -> Arc<Vault> {
        self.0.outbound.vaults.of(id)
    }

    /// A host with credentials that this policy would not allow.
    pub(crate) fn uncovered(&self, id: SandboxId, policy: &Policy) -> Option<String> {
        self.vault(id).active().uncovered(|name| allows(policy, name))
    }

    /// Changes a vault. The change is told what the policy allows, and that stays so until it is
    /// done.
    pub(crate) async fn change_vault<T: Send + 'static>(
        &self,
        id: SandboxId,
        change: impl FnOnce(&Vault, &dyn Fn(&Name) -> bool) -> Result<T, VaultError> + Send + 'static,
    ) -> Result<Result<T, VaultError>, JoinError> {
        let shared = Arc::clone(&self.0);
        let turn = shared.outbound.turns.of(id).lock_owned().await;
        let Some(record) = shared.store.index().get(id) else {
            return Ok(Err(VaultError::Missing));
        };
        let (vault, policy) = (self.vault(id), shared.policy(&record));
        // What is kept is written to a disk.
        let change = tokio::task::spawn_blocking(move || {
            let answer = change(&vault, &|name| allows(&policy, name));
            // A sandbox that ended meanwhile leaves nothing behind.
            if shared.store.index().get(id).is_none() {
                shared.forget_vault(id);
            }
            drop(turn);
            answer
        });
        change.await
    }
}

impl Shared {
    /// Wipes the secrets of a sandbox that is gone.
    pub(super) fn forget_vault(&self, id: SandboxId) {
        if let Err(error) = self.outbound.vaults.forget(id) {
            tracing::error!(
                sandbox_id = %id, error = %Chain(&error),
                "what was kept of the sandbox's vault could not be removed; the next start will"
            );
        }
    }
}

fn allows(policy: &Policy, name: &Name) -> bool {
    policy.name(name).verdict == Verdict::Allow
}
