use serde::{Deserialize, Serialize};

use crate::lifecycle::NetworkPolicy;

/// The answer of every call on `/policy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    pub status: PolicyState,
    pub mode: PolicyMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement_mode: Option<EnforcementMode>,
    /// Why nothing changed, or what a change without rules meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The policy as it was asked for; only when it is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<NetworkPolicy>,
}

impl PolicyStatus {
    /// The reason when a deletion names only targets that no rule has.
    pub const NOTHING_DELETED: &str = "no matching targets found";

    /// The status of `policy`, which is not repeated in it.
    pub fn of(policy: &NetworkPolicy) -> Self {
        Self {
            status: PolicyState::Ok,
            mode: PolicyMode::of(policy),
            enforcement_mode: None,
            reason: None,
            policy: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PolicyState {
    Ok,
}

/// What a policy comes down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PolicyMode {
    /// No rules, and everything is allowed.
    AllowAll,
    /// No rules, and nothing is allowed.
    DenyAll,
    /// There are rules.
    Enforcing,
}

impl PolicyMode {
    pub fn of(policy: &NetworkPolicy) -> Self {
        use crate::lifecycle::NetworkAction::{Allow, Deny};
        if !policy.egress.is_empty() {
            return Self::Enforcing;
        }
        match policy.default_action {
            Some(Allow) => Self::AllowAll,
            Some(Deny) | None => Self::DenyAll,
        }
    }
}

/// Where a policy takes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum EnforcementMode {
    /// Names only.
    #[serde(rename = "dns")]
    Dns,
    /// Names and every packet.
    #[serde(rename = "dns+nft")]
    DnsAndPackets,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(value: serde_json::Value) -> NetworkPolicy {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_mode_follows_from_the_policy() {
        let rule = json!({"action": "allow", "target": "pypi.org"});
        for (value, mode) in [
            (json!({}), PolicyMode::DenyAll),
            (json!({"defaultAction": "deny", "egress": null}), PolicyMode::DenyAll),
            (json!({"defaultAction": "allow"}), PolicyMode::AllowAll),
            (json!({"egress": [rule]}), PolicyMode::Enforcing),
        ] {
            assert_eq!(PolicyMode::of(&policy(value.clone())), mode, "{value}");
        }
    }

    #[test]
    fn a_policy_without_rules_shows_an_empty_list() {
        let policy = policy(json!({"defaultAction": "deny"}));
        let status = PolicyStatus {
            enforcement_mode: Some(EnforcementMode::DnsAndPackets),
            policy: Some(policy.clone()),
            ..PolicyStatus::of(&policy)
        };
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            json!({
                "status": "ok",
                "mode": "deny_all",
                "enforcementMode": "dns+nft",
                "policy": {"defaultAction": "deny", "egress": []},
            })
        );
    }
}
