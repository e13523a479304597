//! The control plane: an HTTP server that turns requests into desired state, and a reconciler that
//! turns desired state into sandboxes.
//!
//! Data flows one way. A request is checked (`admission`) and written (`store`); the sandbox's
//! driver (`reconcile`) compares it with what the runtime sees and takes the next step; the
//! handler waits for the record to say that it is done. Handlers never call a runtime;
//! what has no record, such as a kept volume, they reach through the reconciler.

mod admission;
mod app;
mod audit;
mod auth;
mod borrowed;
mod builds;
mod config;
mod connections;
mod cors;
mod error;
mod execd;
mod extract;
mod history;
mod ingress;
mod key;
mod library;
mod page;
mod place;
mod query;
mod reconcile;
mod record;
mod reload;
mod request_id;
mod routes;
mod server;
mod snapshot_record;
mod store;
mod template_record;
mod templates;
mod terms;
mod tls;
mod token;
mod unwanted;
mod uses;
mod vaults;
mod view;

pub use audit::{AUDIT_DIRECTORY, RawAudit};
pub use config::{AuthMode, Config, ConfigError, KeyConfig, Overrides, PublicHost, RawConfig};
pub use key::ApiKeySource;
pub use osb_egress::{
    Operator, OperatorError, Policy as EgressPolicy, PolicyError, RawOperator,
    Settings as EgressSettings, meet,
};
pub use reconcile::StartupError;
pub use reload::Reload;
pub use server::{Server, StartError, World};
pub use store::StoreError;
pub use tls::{Identity, RawTls};
pub use unwanted::{Wanted, remove_unwanted};
pub use vaults::VaultsError;
