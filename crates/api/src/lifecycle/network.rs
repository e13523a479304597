use serde::{Deserialize, Serialize};

use crate::null;

/// What a sandbox may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// What happens to destinations that no rule names; `deny` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_action: Option<NetworkAction>,
    /// Rules in order of precedence.
    #[serde(default, deserialize_with = "null::or_default")]
    pub egress: Vec<NetworkRule>,
}

/// One destination and what happens to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NetworkRule {
    pub action: NetworkAction,
    /// A host name, `*.domain`, an address or a range of addresses.
    #[cfg_attr(
        feature = "schema",
        schema(min_length = 1, examples("pypi.org", "*.example.com", "192.0.2.0/24"))
    )]
    pub target: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum NetworkAction {
    Allow,
    Deny,
}

/// A sandbox's policy and how it is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyStatus {
    pub status: String,
    /// `enforcing`, `allow_all` or `deny_all`.
    pub mode: String,
    pub policy: NetworkPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
