use serde::{Deserialize, Serialize};

use super::{Binding, BindingSummary, Credential, CredentialSummary};
use crate::null;

/// The body of `POST /credential-vault`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateVaultRequest {
    #[serde(default, deserialize_with = "null::or_default")]
    pub credentials: Vec<Credential>,
    #[serde(default, deserialize_with = "null::or_default")]
    pub bindings: Vec<Binding>,
}

/// The body of `PATCH /credential-vault`: all of it takes effect, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchVaultRequest {
    /// Refuse unless the vault is at this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_revision: Option<u64>,
    #[serde(default, deserialize_with = "null::or_default")]
    pub credentials: CredentialChanges,
    #[serde(default, deserialize_with = "null::or_default")]
    pub bindings: BindingChanges,
}

/// Changes to the credentials, in this order: delete, replace, add.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CredentialChanges {
    #[serde(default, deserialize_with = "null::or_default")]
    pub add: Vec<Credential>,
    #[serde(default, deserialize_with = "null::or_default")]
    pub replace: Vec<Credential>,
    /// Names.
    #[serde(default, deserialize_with = "null::or_default")]
    pub delete: Vec<String>,
}

/// Changes to the bindings, in this order: delete, replace, add.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BindingChanges {
    #[serde(default, deserialize_with = "null::or_default")]
    pub add: Vec<Binding>,
    #[serde(default, deserialize_with = "null::or_default")]
    pub replace: Vec<Binding>,
    /// Names.
    #[serde(default, deserialize_with = "null::or_default")]
    pub delete: Vec<String>,
}

/// What can be read of a vault, each list sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct VaultState {
    /// Begins at 1 and grows with every change.
    pub revision: u64,
    pub credentials: Vec<CredentialSummary>,
    pub bindings: Vec<BindingSummary>,
}

/// The answer of `GET /credential-vault/credentials`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CredentialList {
    pub revision: u64,
    pub credentials: Vec<CredentialSummary>,
}

/// The answer of `GET /credential-vault/bindings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BindingList {
    pub revision: u64,
    pub bindings: Vec<BindingSummary>,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn what_published_clients_send_is_understood() {
        let create: CreateVaultRequest = from_value(json!({
            "credentials": [{"name": "gh", "source": {"value": "t", "type": "inline"}}],
            "bindings": [{
                "name": "github",
                "match": {"schemes": ["https"], "hosts": ["api.github.com"], "ports": [443]},
                "auth": {"type": "bearer", "credential": "gh"},
            }],
        }))
        .unwrap();
        assert_eq!(create.bindings.len(), 1);
        let patch: PatchVaultRequest = from_value(json!({
            "expectedRevision": 3,
            "credentials": {"delete": ["gh"]},
        }))
        .unwrap();
        assert_eq!(patch.expected_revision, Some(3));
        assert_eq!(patch.credentials.delete, ["gh"]);
        assert_eq!(
            from_value::<PatchVaultRequest>(json!({"bindings": null})).unwrap().bindings,
            BindingChanges::default()
        );
        assert!(from_value::<PatchVaultRequest>(json!({"revision": 3})).is_err());
    }

    #[test]
    fn an_empty_vault_shows_empty_lists() {
        let empty = VaultState { revision: 1, credentials: Vec::new(), bindings: Vec::new() };
        assert_eq!(
            to_value(empty).unwrap(),
            json!({"revision": 1, "credentials": [], "bindings": []})
        );
    }

    #[test]
    fn no_request_prints_its_secrets() {
        let create: CreateVaultRequest = from_value(json!({
            "credentials": [{"name": "n", "source": {"value": "hunter2"}}],
        }))
        .unwrap();
        assert!(!format!("{create:?}").contains("hunter2"));
    }
}
