use serde::{Deserialize, Serialize};

use crate::{lifecycle::Secret, null};

/// A secret to keep, under a name that bindings use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Credential {
    #[cfg_attr(feature = "schema", schema(min_length = 1))]
    pub name: String,
    pub source: CredentialSource,
}

/// Where the secret comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CredentialSource {
    #[serde(rename = "type", default, deserialize_with = "null::or_default")]
    pub kind: SourceType,
    /// The secret itself; not empty.
    pub value: Secret,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum SourceType {
    /// In the request.
    #[default]
    #[serde(alias = "")]
    Inline,
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
        assert!(source(json!({"type": "file", "value": "s"})).is_err());
        assert!(source(json!({"value": "s", "ttl": 1})).is_err());
    }

    #[test]
    fn a_secret_does_not_print() {
        let source = CredentialSource { kind: SourceType::Inline, value: Secret::new("hunter2") };
        let credential = Credential { name: "n".to_owned(), source };
        assert!(!format!("{credential:?}").contains("hunter2"));
    }
}
