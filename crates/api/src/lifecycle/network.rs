use serde::{Deserialize, Deserializer, Serialize, de};

use crate::null;

/// What a sandbox may reach. Keys that are not known are refused: what would be a restriction
/// elsewhere must not be none here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
pub struct NetworkRule {
    pub action: NetworkAction,
    /// A host name, `*.domain`, an address or a range of addresses.
    #[cfg_attr(
        feature = "schema",
        schema(min_length = 1, examples("pypi.org", "*.example.com", "192.0.2.0/24"))
    )]
    pub target: String,
    /// The ports that the rule is about; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(min_items = 1, max_items = 64, examples(json!([443, 5432])))
    )]
    pub ports: Option<Vec<u16>>,
    /// The methods of HTTP that the rule is about; all if absent. A rule with methods or paths is
    /// about single requests, at the ports 80 and 443 if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(min_items = 1, max_items = 16, examples(json!(["GET", "HEAD"])))
    )]
    pub methods: Option<Vec<String>>,
    /// The paths that the rule is about, each whole or with a `*` at its end; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(min_items = 1, max_items = 64, examples(json!(["/user", "/repos/*"])))
    )]
    pub paths: Option<Vec<String>>,
}

impl NetworkRule {
    /// A rule about all ports of `target`, and everything there.
    pub fn new(action: NetworkAction, target: impl Into<String>) -> Self {
        Self { action, target: target.into(), ports: None, methods: None, paths: None }
    }

    /// Whether it is about single requests, so that connections must be looked into.
    pub fn is_about_requests(&self) -> bool {
        self.methods.is_some() || self.paths.is_some()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum NetworkAction {
    Allow,
    Deny,
}

/// In any case and with space around it, and blank as `deny`, as other servers read it.
impl<'de> Deserialize<'de> for NetworkAction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.trim().to_ascii_lowercase().as_str() {
            "allow" => Ok(Self::Allow),
            "deny" | "" => Ok(Self::Deny),
            _ => Err(de::Error::custom(format!(
                "an action is `allow` or `deny`, and {:?} is neither",
                text.chars().take(64).collect::<String>()
            ))),
        }
    }
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
    /// The rules that the operator of the server gives all sandboxes, which are asked before the
    /// policy's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operator: Vec<NetworkRule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn actions_are_read_as_people_write_them() {
        for (text, action) in [
            ("allow", NetworkAction::Allow),
            (" Allow ", NetworkAction::Allow),
            ("DENY", NetworkAction::Deny),
            ("", NetworkAction::Deny),
        ] {
            assert_eq!(from_value::<NetworkAction>(json!(text)).unwrap(), action, "{text:?}");
        }
        let error = from_value::<NetworkAction>(json!("permit")).unwrap_err().to_string();
        assert!(error.contains("\"permit\""), "{error}");
        assert!(from_value::<NetworkPolicy>(json!({"defaultAction": "none"})).is_err());
    }

    #[test]
    fn what_would_be_a_restriction_elsewhere_is_not_ignored() {
        for rule in [
            json!({"action": "allow", "target": "a.example", "method": ["GET"]}),
            json!({"action": "allow", "target": "a.example", "methods": "GET"}),
            json!({"action": "allow", "target": "a.example", "query": ["a=b"]}),
            json!({"action": "allow", "target": "a.example", "port": [80]}),
            json!({"action": "allow", "target": "a.example", "ports": ["80"]}),
            json!({"action": "allow", "target": "a.example", "ports": [65536]}),
        ] {
            assert!(from_value::<NetworkRule>(rule.clone()).is_err(), "{rule} was accepted");
        }
        assert!(from_value::<NetworkPolicy>(json!({"default": "deny"})).is_err());
    }

    #[test]
    fn rules_show_what_they_have() {
        let rule = NetworkRule::new(NetworkAction::Allow, "a.example");
        assert_eq!(to_value(&rule).unwrap(), json!({"action": "allow", "target": "a.example"}));
        let rule = NetworkRule { ports: Some(vec![443]), ..rule };
        assert_eq!(to_value(&rule).unwrap()["ports"], json!([443]));
        assert!(!rule.is_about_requests());
        let rule = NetworkRule { paths: Some(vec!["/a/*".into()]), ..rule };
        assert_eq!(to_value(&rule).unwrap()["paths"], json!(["/a/*"]));
        assert!(rule.is_about_requests());
    }
}
