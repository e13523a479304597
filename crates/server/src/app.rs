use std::{sync::Arc, time::Duration};

use osb_api::SandboxId;
use osb_core::Clock;
use osb_egress::vault::{Scope, Transport};
use osb_gateway::Gateway;

use crate::{
    admission::Limits, audit::Auditor, config::PublicHost, error::ApiError, key::ApiKey,
    reconcile::Reconciler, record::Record, store::Store,
};

/// What every handler may use. No runtime: handlers write what should be and wait.
pub(crate) type App = Arc<Parts>;

pub(crate) struct Parts {
    pub(crate) store: Arc<Store>,
    /// What sandboxes do is written down there.
    pub(crate) audit: Arc<Auditor>,
    pub(crate) reconciler: Reconciler,
    pub(crate) gateway: Gateway,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) key: Option<ApiKey>,
    pub(crate) limits: Limits,
    /// How secrets may come to the server.
    pub(crate) transport: Transport,
    /// What bindings must say.
    pub(crate) scope: Scope,
    pub(crate) max_body_bytes: usize,
    /// How long a request waits for what it asked for.
    pub(crate) patience: Duration,
    pub(crate) public_host: Option<PublicHost>,
    /// Where the server listens, for clients that do not say whom they ask.
    pub(crate) local_host: String,
}

impl Parts {
    pub(crate) fn record(&self, id: SandboxId) -> Result<Arc<Record>, ApiError> {
        self.store.index().get(id).ok_or_else(|| ApiError::no_sandbox(id))
    }
}
