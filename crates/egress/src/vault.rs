//! Credentials that a sandbox uses without ever holding them.
//!
//! A vault has secrets and *bindings*, which say what requests get which of them. The sandbox sends
//! its requests without, or with a placeholder; after they have left it, and their peer has proved
//! who it is, the secret is put in. What comes back is searched for it.
//!
//! ```text
//!   Vault ── create, patch, delete ──► Active ── find ──► Bound ── arm ──► Armed
//!   (one per sandbox)                  (a snapshot)       (a binding)      (with secrets)
//! ```

mod active;
mod armed;
mod binding;
mod credential;
mod encode;
mod heads;
mod host;
mod keep;
mod letters;
pub(crate) mod path;
mod patterns;
mod redact;
mod redaction;
mod remote;
mod sealed;
mod settings;
mod source;
mod spellings;
mod terms;
mod vaults;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use osb_api::{
    SandboxId,
    egress::{
        Binding, BindingChanges, BindingList, BindingSummary, CreateVaultRequest, Credential,
        CredentialChanges, CredentialList, CredentialSummary, PatchVaultRequest, Scheme,
        VaultState,
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::armed::ask_plainly;
use self::credential::Held;
pub use self::{
    active::{Active, Bound, Found, NotArmed},
    armed::{Armed, Refused, Unfit},
    keep::{Keep, KeepError},
    patterns::{Overgrown, Rewrite},
    redact::Redactor,
    remote::{BadAddress, Remote, RemoteError, Token},
    settings::{BadSettings, RawVault, RawVaultStore, VaultSettings},
    source::{SourceError, Sources},
    spellings::Work,
    terms::{BadProxy, Proxies, Scope, Transport},
    vaults::Vaults,
};
#[cfg(feature = "fuzzing")]
pub use self::{patterns::rewrite, redaction::redact};
use crate::Name;

/// The most credentials, and the most bindings, of one vault.
const MOST: usize = 128;
/// How many bytes of bodies are in memory as a whole, of all requests of a sandbox.
const ROOM: usize = 8 << 20;

/// The vault of one sandbox, if it has been made.
#[derive(Debug)]
pub struct Vault {
    sources: Arc<Sources>,
    /// Where it outlives the server, if it does.
    keep: Option<(Arc<Keep>, SandboxId)>,
    kept: Mutex<Kept>,
    /// What requests see. Never locked for longer than it takes to copy a pointer.
    active: RwLock<Arc<Active>>,
    /// A permit for every byte of the bodies that are in memory as a whole.
    room: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The last one that was given out. It goes on after a vault was deleted, so that nobody takes
    /// a new vault for the one they knew.
    revision: u64,
    content: Option<Content>,
}

#[derive(Debug, Clone, Default)]
struct Content {
    credentials: BTreeMap<String, Arc<Held>>,
    /// In their normal form.
    bindings: BTreeMap<String, Binding>,
}

/// Why a vault is not read or changed.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error(
        "there is no vault: it was not made, was deleted, or went with a restart of the server"
    )]
    Missing,
    #[error("the vault has no {0}")]
    Unknown(String),
    #[error("there is a vault already: patch it, or delete it first")]
    Exists,
    #[error("the vault is at revision {current}, not {expected}: read it again")]
    Stale { expected: u64, current: u64 },
    #[error("{0}")]
    Invalid(String),
    #[error("the change cannot be kept, so it was not made")]
    NotKept(#[source] KeepError),
}

impl Vault {
    pub fn new(sources: Arc<Sources>) -> Self {
        Self {
            sources,
            keep: None,
            kept: Mutex::default(),
            active: RwLock::default(),
            room: Arc::new(Semaphore::new(ROOM)),
        }
    }

    /// Puts back what was kept when the last server ended, if anything was.
    fn restore(&self) -> Result<(), KeepError> {
        let Some((keep, id)) = &self.keep else { return Ok(()) };
        let Some(text) = keep.read(*id)? else { return Ok(()) };
        let kept = sealed::read(&text).ok_or(KeepError::Open)?;
        let content = kept.content.as_ref();
        // The policy decides again when a request comes.
        let active = content.map(|content| content.compile(&self.sources, |_| true)).transpose();
        self.activate(active.map_err(|_| KeepError::Open)?.unwrap_or_default());
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        Ok(())
    }

    /// What is in force now. Ask again for every request.
    pub fn active(&self) -> Arc<Active> {
        Arc::clone(&self.active.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Room for a body in memory, if there is that much left.
    pub(crate) fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }

    /// Makes the vault. Bindings must have the `scope`, and their hosts be `allowed` by the policy.
    pub fn create(
        &self,
        request: CreateVaultRequest,
        scope: Scope,
        allowed: impl Fn(&Name) -> bool,
    ) -> Result<VaultState, VaultError> {
        self.change(
            |kept, revision| {
                if kept.content.is_some() {
                    return Err(VaultError::Exists);
                }
                let mut content = Content::default();
                content.add_credentials(request.credentials, revision, &self.sources)?;
                content.add_bindings(request.bindings, scope, &self.sources)?;
                Ok(content)
            },
            allowed,
        )
    }

    /// Changes the vault: all that is asked for, or nothing.
    pub fn patch(
        &self,
        request: PatchVaultRequest,
        scope: Scope,
        allowed: impl Fn(&Name) -> bool,
    ) -> Result<VaultState, VaultError> {
        self.change(
            |kept, revision| {
                let mut content = kept.content.clone().ok_or(VaultError::Missing)?;
                if let Some(expected) = request.expected_revision
                    && expected != kept.revision
                {
                    return Err(VaultError::Stale { expected, current: kept.revision });
                }
                content.change_credentials(request.credentials, revision, &self.sources)?;
                content.change_bindings(request.bindings, scope, &self.sources)?;
                Ok(content)
            },
            allowed,
        )
    }

    /// Forgets everything.
    pub fn delete(&self) -> Result<(), VaultError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.content.is_none() {
            return Err(VaultError::Missing);
        }
        self.write(kept.revision, None)?;
        kept.content = None;
        self.activate(Active::default());
        Ok(())
    }

    pub fn state(&self) -> Result<VaultState, VaultError> {
        self.look(|content, revision| Ok(content.state(revision)))
    }

    pub fn credentials(&self) -> Result<CredentialList, VaultError> {
        let VaultState { revision, credentials, .. } = self.state()?;
        Ok(CredentialList { revision, credentials })
    }

    pub fn credential(&self, name: &str) -> Result<CredentialSummary, VaultError> {
        self.look(|content, _| {
            let held = content.credentials.get(name);
            held.map(|held| held.summary()).ok_or_else(|| unknown("credential", name))
        })
    }

    pub fn bindings(&self) -> Result<BindingList, VaultError> {
        let VaultState { revision, bindings, .. } = self.state()?;
        Ok(BindingList { revision, bindings })
    }

    pub fn binding(&self, name: &str) -> Result<BindingSummary, VaultError> {
        self.look(|content, revision| {
            let binding = content.bindings.get(name);
            binding.map(|b| summary(b, revision)).ok_or_else(|| unknown("binding", name))
        })
    }

    fn look<T>(
        &self,
        look: impl FnOnce(&Content, u64) -> Result<T, VaultError>,
    ) -> Result<T, VaultError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        look(kept.content.as_ref().ok_or(VaultError::Missing)?, kept.revision)
    }

    /// Lets `next` say what the vault becomes, checks that whole, and puts it in force.
    fn change(
        &self,
        next: impl FnOnce(&Kept, u64) -> Result<Content, VaultError>,
        allowed: impl Fn(&Name) -> bool,
    ) -> Result<VaultState, VaultError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = kept.revision + 1;
        let content = next(&kept, revision)?;
        let active = content.compile(&self.sources, allowed)?;
        let state = content.state(revision);
        self.write(revision, Some(&content))?;
        *kept = Kept { revision, content: Some(content) };
        self.activate(active);
        Ok(state)
    }

    fn write(&self, revision: u64, content: Option<&Content>) -> Result<(), VaultError> {
        let Some((keep, id)) = &self.keep else { return Ok(()) };
        let text =
            sealed::write(revision, content).map_err(|_| VaultError::NotKept(KeepError::Seal))?;
        keep.write(*id, text).map_err(VaultError::NotKept)
    }

    fn activate(&self, active: Active) {
        let mut now = self.active.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *now, Arc::new(active));
        drop(now);
        // It takes longer to wipe it than anybody should wait.
        drop(before);
    }
}

impl Content {
    fn add_credentials(
        &mut self,
        added: Vec<Credential>,
        revision: u64,
        sources: &Sources,
    ) -> Result<(), VaultError> {
        for credential in added {
            let held = Held::new(credential, revision, sources).map_err(VaultError::Invalid)?;
            let name = held.name.clone();
            if self.credentials.insert(name.clone(), Arc::new(held)).is_some() {
                return Err(twice("credential", &name));
            }
        }
        bounded("credentials", self.credentials.len())
    }

    fn add_bindings(
        &mut self,
        added: Vec<Binding>,
        scope: Scope,
        sources: &Sources,
    ) -> Result<(), VaultError> {
        for binding in added {
            let binding = admitted(binding, scope, sources)?;
            let name = binding.name.clone();
            if self.bindings.insert(name.clone(), binding).is_some() {
                return Err(twice("binding", &name));
            }
        }
        bounded("bindings", self.bindings.len())
    }

    fn change_credentials(
        &mut self,
        changes: CredentialChanges,
        revision: u64,
        sources: &Sources,
    ) -> Result<(), VaultError> {
        let CredentialChanges { add, replace, delete } = changes;
        let replaced = replace.iter().map(|credential| credential.name.as_str());
        let added = add.iter().map(|credential| credential.name.as_str());
        once("credential", delete.iter().map(String::as_str).chain(replaced).chain(added))?;
        for name in delete.iter().map(|name| name.trim()) {
            self.credentials.remove(name).ok_or_else(|| not_there("credential", name))?;
        }
        for credential in replace {
            let held = Held::new(credential, revision, sources).map_err(VaultError::Invalid)?;
            let known = self.credentials.get_mut(&held.name);
            let known = known.ok_or_else(|| not_there("credential", &held.name))?;
            *known = Arc::new(held);
        }
        self.add_credentials(add, revision, sources)
    }

    fn change_bindings(
        &mut self,
        changes: BindingChanges,
        scope: Scope,
        sources: &Sources,
    ) -> Result<(), VaultError> {
        let BindingChanges { add, replace, delete } = changes;
        let replaced = replace.iter().map(|binding| binding.name.as_str());
        let added = add.iter().map(|binding| binding.name.as_str());
        once("binding", delete.iter().map(String::as_str).chain(replaced).chain(added))?;
        for name in delete.iter().map(|name| name.trim()) {
            self.bindings.remove(name).ok_or_else(|| not_there("binding", name))?;
        }
        for binding in replace {
            let binding = admitted(binding, scope, sources)?;
            let known = self.bindings.get_mut(&binding.name);
            let known = known.ok_or_else(|| not_there("binding", &binding.name))?;
            *known = binding;
        }
        self.add_bindings(add, scope, sources)
    }

    /// Checks what only the whole can show: that credentials are there, that hosts are allowed, and
    /// that no request is for two bindings.
    fn compile(
        &self,
        sources: &Arc<Sources>,
        allowed: impl Fn(&Name) -> bool,
    ) -> Result<Active, VaultError> {
        let mut bindings = Vec::with_capacity(self.bindings.len());
        for binding in self.bindings.values() {
            let bound = Bound::new(binding, &self.credentials, sources);
            bindings.push(Arc::new(bound.map_err(VaultError::Invalid)?));
        }
        let active = Active::new(bindings);
        if let Some(host) = active.uncovered(allowed) {
            return Err(VaultError::Invalid(format!(
                "the network policy does not allow {host}: add a rule for it first"
            )));
        }
        if let Some((one, other)) = active.collision() {
            return Err(VaultError::Invalid(format!(
                "bindings {one:?} and {other:?} are for the same requests"
            )));
        }
        Ok(active)
    }

    fn state(&self, revision: u64) -> VaultState {
        VaultState {
            revision,
            credentials: self.credentials.values().map(|held| held.summary()).collect(),
            bindings: self.bindings.values().map(|binding| summary(binding, revision)).collect(),
        }
    }
}

/// A binding in its normal form, if it is what the operator and the maker of the sandbox ask for.
fn admitted(binding: Binding, scope: Scope, sources: &Sources) -> Result<Binding, VaultError> {
    let asked = scope.check(&binding.requests);
    let binding = binding::normalise(binding).map_err(VaultError::Invalid)?;
    let is_plain = binding.requests.schemes.contains(&Scheme::Http);
    let released = if is_plain && !sources.plain_http {
        Err("the operator of this server does not release credentials over plain HTTP: leave \
             schemes out, or ask for egress.vault.plain-http")
    } else {
        Ok(())
    };
    let within = |why| VaultError::Invalid(format!("binding {:?}: {why}", binding.name));
    asked.and(released).map_err(within)?;
    Ok(binding)
}

fn summary(binding: &Binding, revision: u64) -> BindingSummary {
    BindingSummary {
        name: binding.name.clone(),
        revision,
        requests: binding.requests.clone(),
        auth: binding.auth.summary(),
    }
}

/// A patch names a thing once, so that its order does not matter to who wrote it.
fn once<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), VaultError> {
    let mut seen = BTreeSet::new();
    for name in names.map(str::trim) {
        if !seen.insert(name) {
            return Err(VaultError::Invalid(format!("{what} {name:?} is in the patch twice")));
        }
    }
    Ok(())
}

fn bounded(what: &str, count: usize) -> Result<(), VaultError> {
    let message = || VaultError::Invalid(format!("a vault has at most {MOST} {what}"));
    if count > MOST { Err(message()) } else { Ok(()) }
}

fn twice(what: &str, name: &str) -> VaultError {
    VaultError::Invalid(format!("there is a {what} {name:?} already"))
}

fn not_there(what: &str, name: &str) -> VaultError {
    VaultError::Invalid(format!("there is no {what} {name:?} to change"))
}

fn unknown(what: &str, name: &str) -> VaultError {
    VaultError::Unknown(format!("{what} {name:?}"))
}

#[cfg(test)]
mod tests;
