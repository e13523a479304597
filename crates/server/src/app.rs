use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use osb_api::SandboxId;
use osb_core::Clock;
use osb_egress::vault::{Scope, Transport};
use osb_gateway::Gateway;
use osb_image::Remote;

use crate::{
    admission::Limits,
    audit::Auditor,
    builds::Builds,
    config::PublicHost,
    error::ApiError,
    ingress::{GatewayDomain, Signer},
    key::ApiKey,
    reconcile::Reconciler,
    record::Record,
    store::Store,
    templates::Templates,
};

/// What every handler may use. No runtime: handlers write what should be and wait.
pub(crate) type App = Arc<Parts>;

pub(crate) struct Parts {
    pub(crate) store: Arc<Store>,
    /// What sandboxes do is written down there.
    pub(crate) audit: Arc<Auditor>,
    pub(crate) reconciler: Reconciler,
    pub(crate) gateway: Gateway,
    /// Images on this machine, and how they come and go, if the runtime leaves that to the server.
    pub(crate) images: Option<Remote>,
    /// What is built here, if the runtime has sandboxes for that.
    pub(crate) builds: Option<Builds>,
    pub(crate) templates: Templates,
    pub(crate) clock: Arc<dyn Clock>,
    /// What a reload replaces.
    pub(crate) current: RwLock<Arc<Current>>,
    /// How secrets may come to the server.
    pub(crate) transport: Transport,
    /// What bindings must say.
    pub(crate) scope: Scope,
    pub(crate) max_body_bytes: usize,
    /// How much time lies at least between two requests that put an expiry off.
    pub(crate) renew_interval: Duration,
    /// How long a request waits for what it asked for.
    pub(crate) patience: Duration,
    pub(crate) public_host: Option<PublicHost>,
    /// Below which hosts are ports of sandboxes, if any are.
    pub(crate) gateway_domain: Option<GatewayDomain>,
    /// Signs addresses of ports.
    pub(crate) signer: Signer,
    /// Where the server listens, for clients that do not say whom they ask.
    pub(crate) local_host: String,
}

/// Settings that may change while the server runs.
#[derive(Debug)]
pub(crate) struct Current {
    /// Without one everybody may call. That there is one never changes.
    pub(crate) key: Option<ApiKey>,
    pub(crate) limits: Limits,
}

impl Parts {
    /// The settings of this moment.
    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on these hold.
    pub(crate) fn replace(&self, next: Current) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }

    pub(crate) fn limits(&self) -> Limits {
        self.current().limits
    }

    pub(crate) fn record(&self, id: SandboxId) -> Result<Arc<Record>, ApiError> {
        let record = self.store.index().get(id).filter(|record| record.is_clients());
        record.ok_or_else(|| ApiError::no_sandbox(id))
    }
}
