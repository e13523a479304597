use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use osb_api::{
    SandboxId, TemplateId,
    lifecycle::{NetworkPolicy, Platform},
};
use osb_core::{Desired, Phase, Status, Token};

use crate::{
    history::{Happening, History},
    terms::VaultTerms,
    uses::Uses,
};

/// All that the server knows about one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) desired: Desired,
    pub(crate) created_at: Timestamp,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Those that answers echo.
    pub(crate) extensions: BTreeMap<String, String>,
    /// Only if the request named one.
    pub(crate) platform: Option<Platform>,
    /// What it may reach; without one, what the operator says.
    pub(crate) policy: Option<Arc<NetworkPolicy>>,
    /// Whether it may have a vault, whose secrets are put into its requests.
    pub(crate) credential_proxy: bool,
    /// What its maker asks of whoever fills the vault.
    pub(crate) vault_terms: VaultTerms,
    /// What callers of the egress port must send.
    pub(crate) egress_token: Token,
    /// What callers of every port must send, if the sandbox was made that way.
    pub(crate) secure_access: Option<Token>,
    /// What it was made from, if that is a template.
    pub(crate) template: Option<TemplateId>,
    /// By how many seconds a request puts its expiry off, if it does.
    pub(crate) renew_seconds: Option<u32>,
    /// Whether anybody was told that the sandbox exists. One that nobody knows is rolled back.
    pub(crate) announced: bool,
    pub(crate) purpose: Purpose,
    /// What happened to it.
    pub(crate) history: History,
    /// Counts what clients asked for, so that its driver tells their changes from its own notes.
    /// Lives in memory only.
    pub(crate) requests: u64,
    /// How often removal was tried in vain. Lives in memory only.
    pub(crate) failed_removals: u32,
    pub(crate) uses: Uses,
}

/// Whom a sandbox is for. Lives in memory only: one of the server's own is never announced, so the
/// next server removes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Whoever asked for it.
    #[default]
    Client,
    /// A step of a build, of which no client hears.
    Step,
    /// The same, and it reaches nothing at all, whatever the operator gives everybody.
    SealedStep,
    /// A template is made of its files.
    Template,
}

impl Record {
    /// Whether clients may hear of it.
    pub(crate) fn is_clients(&self) -> bool {
        self.purpose == Purpose::Client
    }

    pub(crate) fn id(&self) -> SandboxId {
        self.desired.spec.id
    }

    pub(crate) fn phase(&self) -> Phase {
        self.desired.status.phase
    }

    /// Adds to what happened to it. Nobody asks that of a sandbox of the server's own.
    pub(crate) fn tell(&mut self, at: Timestamp, what: Happening) {
        if self.is_clients() {
            self.history.tell(at, what);
        }
    }

    /// Takes on a status that the sandbox has from `now` on, and tells of it.
    pub(crate) fn become_status(&mut self, status: Status, now: Timestamp) {
        self.tell(now, Happening::status(&status));
        self.desired.status = status;
    }
}
