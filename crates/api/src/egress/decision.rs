use serde::{Deserialize, Serialize};

use crate::lifecycle::{NetworkAction, Time};

/// What was decided of late about what a sandbox tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DecisionLog {
    /// In the order of what happened last.
    pub decisions: Vec<Decision>,
}

/// How decisions are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
pub struct DecisionQuery {
    /// Answer with those to come too, one JSON object per line, until the sandbox ends.
    #[serde(default)]
    pub follow: bool,
}

/// What was decided about something that a sandbox tried, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Counts what the sandbox tried. What is told of again, such as a connection at its end, has
    /// the number that it had.
    pub number: u64,
    /// When it was decided; the last time if that was more than once.
    pub at: Time,
    pub protocol: DecisionProtocol,
    /// The host that it was for, if it was for a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it went, as far as that came to be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub port: u16,
    /// Of a request on a connection that is looked into: how it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// And what for, without the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What its headers ask for as well, such as `X-HTTP-Method-Override`: servers differ in which
    /// counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_methods: Vec<String>,
    /// Of these `X-Original-URL` is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_paths: Vec<String>,
    /// The names of the credentials that the request was to be given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<String>,
    /// What the host answered whom they were given to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why they were not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    pub action: NetworkAction,
    #[serde(flatten)]
    pub reason: DecisionReason,
    /// How often the same was tried with the same outcome.
    pub times: u64,
    /// How it ended, once it has. If it was tried more than once, in sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<DecisionEnd>,
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DecisionReason {
    pub reason: ReasonKind,
    /// The target of the rule, as it was written; with the ports, methods and paths that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What kind of address is guarded: host, metadata, private, link-local or special.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarded: Option<String>,
    /// The binding of the vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReasonKind {
    /// A rule of the sandbox's policy.
    Rule,
    /// A rule that the operator gave all sandboxes.
    Operator,
    /// No rule said anything.
    Default,
    /// The address is one that nobody reaches unless a rule names it.
    Guard,
    /// The connection is not for the host that it says it is for.
    Mismatch,
    /// The sandbox has more of them at once, or more often, than it may.
    Limit,
    /// A binding of the sandbox's vault.
    Binding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DecisionProtocol {
    /// A question for a name.
    Dns,
    Tcp,
    Udp,
    /// A request on a connection that is looked into.
    Http,
    /// The use of a vault's credentials for such a request.
    Credential,
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DecisionEnd {
    pub outcome: DecisionOutcome,
    /// Why it was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_by: Option<DecisionReason>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DecisionOutcome {
    /// By its ends.
    Done,
    /// It was allowed, but the other side could not be reached.
    Unreachable,
    /// It was looked into, and the other side did not prove who it is: it was sent nothing.
    Unverified,
    /// By the policy, or because it turned out to be for somebody else.
    Cut,
}
