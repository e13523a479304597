use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use osb_api::SandboxId;

use super::{Keep, KeepError, Sources, Vault};

/// The vaults of all sandboxes. They live in memory, unless there is a place to keep them.
#[derive(Debug, Default)]
pub struct Vaults {
    sources: Arc<Sources>,
    keep: Option<Arc<Keep>>,
    all: Mutex<HashMap<SandboxId, Arc<Vault>>>,
}

impl Vaults {
    pub fn new(sources: Arc<Sources>) -> Self {
        Self { sources, ..Self::default() }
    }

    /// Vaults that outlive the server. What is kept for others than these `sandboxes` is removed.
    pub fn kept(
        sources: Arc<Sources>,
        keep: Keep,
        sandboxes: impl IntoIterator<Item = SandboxId>,
    ) -> Result<Self, KeepError> {
        let vaults = Self { sources, keep: Some(Arc::new(keep)), all: Mutex::default() };
        for id in sandboxes {
            vaults.restore(id)?;
        }
        let Self { keep, all, .. } = &vaults;
        let all = all.lock().unwrap_or_else(PoisonError::into_inner);
        keep.as_ref().map_or(Ok(()), |keep| keep.sweep(|id| all.contains_key(&id)))?;
        drop(all);
        Ok(vaults)
    }

    /// The vault of this sandbox, which may yet have to be made.
    pub fn of(&self, id: SandboxId) -> Arc<Vault> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || Vault {
            keep: self.keep.clone().map(|keep| (keep, id)),
            ..Vault::new(Arc::clone(&self.sources))
        };
        Arc::clone(all.entry(id).or_insert_with(|| Arc::new(made())))
    }

    /// Puts back what was kept. What cannot be read is as if it were not there: its sandbox gets no
    /// credentials.
    fn restore(&self, id: SandboxId) -> Result<(), KeepError> {
        match self.of(id).restore() {
            Err(KeepError::Open) => {
                let error = KeepError::Open;
                tracing::error!(sandbox_id = %id, %error, "the sandbox has no vault any more");
                Ok(())
            }
            result => result,
        }
    }

    /// Wipes what was kept for a sandbox that is gone, also for whoever still holds its vault.
    pub fn forget(&self, id: SandboxId) -> Result<(), KeepError> {
        let vault = self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        // One that was never made has nothing to delete.
        vault.map(|vault| vault.delete().ok());
        self.keep.as_ref().map_or(Ok(()), |keep| keep.remove(id))
    }
}

#[cfg(test)]
mod tests {
    use osb_api::egress::{CreateVaultRequest, PatchVaultRequest, Scheme};
    use serde_json::{from_value, json};

    use super::*;
    use crate::vault::{Scope, VaultError};

    #[test]
    fn every_sandbox_has_its_own_and_what_is_forgotten_is_empty() {
        let vaults = Vaults::default();
        let (one, other) = (SandboxId::random(), SandboxId::random());
        let vault = vaults.of(one);
        vault.create(CreateVaultRequest::default(), Scope::Hosts, |_| true).unwrap();
        assert!(vaults.of(one).state().is_ok());
        let is_missing = |vault: Arc<Vault>| matches!(vault.state(), Err(VaultError::Missing));
        assert!(is_missing(vaults.of(other)));
        vaults.forget(one).unwrap();
        assert!(is_missing(vault));
        assert!(is_missing(vaults.of(one)));
    }

    #[test]
    fn what_is_kept_comes_back_with_its_revision_and_only_for_sandboxes_that_are() {
        let directory = tempfile::tempdir().unwrap();
        let start = |ids: &[SandboxId]| {
            let keep = Keep::new(directory.path().into(), &[7; 32]).unwrap();
            Vaults::kept(Arc::default(), keep, ids.iter().copied()).unwrap()
        };
        let (one, other) = (SandboxId::random(), SandboxId::random());
        let first = start(&[]);
        let request = json!({
            "credentials": [{"name": "a", "source": {"value": "hunter2"}}],
            "bindings": [{
                "name": "b",
                "match": {"hosts": ["a.example.com"]},
                "auth": {"type": "bearer", "credential": "a"},
            }],
        });
        let request: CreateVaultRequest = from_value(request).unwrap();
        for id in [one, other] {
            first.of(id).create(request.clone(), Scope::Hosts, |_| true).unwrap();
            first.of(id).patch(PatchVaultRequest::default(), Scope::Hosts, |_| true).unwrap();
        }
        let state = first.of(one).state().unwrap();
        drop(first);

        let second = start(&[one]);
        assert_eq!(second.of(one).state().unwrap(), state);
        let host = crate::Name::parse("a.example.com").unwrap();
        assert!(second.of(one).active().binds(Scheme::Https, &host));
        assert!(second.of(other).state().is_err());
        second.of(one).delete().unwrap();
        drop(second);

        let third = start(&[one]);
        assert!(third.of(one).state().is_err());
        assert_eq!(third.of(one).create(request, Scope::Hosts, |_| true).unwrap().revision, 3);
        third.forget(one).unwrap();
        assert!(start(&[one]).of(one).state().is_err());
    }
}
