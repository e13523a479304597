use serde::{Deserialize, Deserializer, Serialize, de::IntoDeserializer};

use crate::lifecycle::Secret;

/// A secret to keep, under a name that bindings use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Credential {
    #[cfg_attr(feature = "schema", schema(min_length = 1))]
    pub name: String,
    pub source: CredentialSource,
}

/// Where the secret comes from: the secret itself, or what the operator keeps it under.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CredentialSource {
    #[serde(rename = "type", default, deserialize_with = "or_inline")]
    pub kind: SourceType,
    /// `inline`: the secret itself; not empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Secret>,
    /// `env`: the name of the variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `file`: the file, below the operator's directory. `vault`: what to read, as in
    /// `secret/data/github`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `vault`: which field of what is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// All but the first are references, which the server follows when a request needs the secret, and
/// only where its operator allows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum SourceType {
    /// In the request.
    #[default]
    Inline,
    /// In the environment of the server.
    Env,
    /// In a file of the server's host.
    File,
    /// In a store that speaks the HTTP API of HashiCorp Vault.
    Vault,
}

/// Nothing, `null` and an empty text all stand for the default.
fn or_inline<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SourceType, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        Some(kind) if !kind.is_empty() => SourceType::deserialize(kind.into_deserializer()),
        _ => Ok(SourceType::default()),
    }
}

/// What can be read of a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CredentialSummary {
    pub name: String,
    pub source_type: SourceType,
    /// The vault's revision when it was added or last replaced.
    pub revision: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn the_kind_of_source_may_be_left_out_but_not_be_unknown() {
        let source = |source| {
            from_value::<Credential>(json!({"name": "n", "source": source}))
                .map(|credential| credential.source.kind)
        };
        for kind in [json!("inline"), json!(""), json!(null)] {
            assert_eq!(source(json!({"type": kind, "value": "s"})).ok(), Some(SourceType::Inline));
        }
        assert_eq!(source(json!({"value": "s"})).ok(), Some(SourceType::Inline));
        for (kind, read) in [("env", SourceType::Env), ("vault", SourceType::Vault)] {
            assert_eq!(source(json!({"type": kind, "path": "p"})).ok(), Some(read));
        }
        let unknown = source(json!({"type": "keychain", "value": "s"})).unwrap_err().to_string();
        assert!(unknown.ends_with("one of `inline`, `env`, `file`, `vault`"), "{unknown}");
        assert!(source(json!({"value": "s", "ttl": 1})).is_err());
    }

    #[test]
    fn a_secret_does_not_print() {
        let source =
            CredentialSource { value: Some(Secret::new("hunter2")), ..CredentialSource::default() };
        let credential = Credential { name: "n".to_owned(), source };
        assert!(!format!("{credential:?}").contains("hunter2"));
    }
}
