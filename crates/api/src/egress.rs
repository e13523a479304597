//! Wire types of the egress API: the network policy of one sandbox and its credential vault.
//!
//! Policies are those of the lifecycle API. Requests to the vault refuse keys they do not know,
//! since a misspelt restriction would otherwise be no restriction; `null` counts as absent. No
//! answer holds a secret, and lists are never `null`.

mod auth;
mod binding;
mod credential;
mod decision;
mod policy;
mod vault;

pub use auth::{AuthSummary, AuthType, CredentialAuth, CustomHeader, Place, Substitution};
pub use binding::{Binding, BindingSummary, Match, Scheme};
pub use credential::{Credential, CredentialSource, CredentialSummary, SourceType};
pub use decision::{
    Decision, DecisionEnd, DecisionLog, DecisionOutcome, DecisionProtocol, DecisionQuery,
    DecisionReason, ReasonKind,
};
pub use policy::{EnforcementMode, PolicyMode, PolicyState, PolicyStatus};
pub use vault::{
    BindingChanges, BindingList, CreateVaultRequest, CredentialChanges, CredentialList,
    PatchVaultRequest, VaultState,
};
