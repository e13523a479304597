use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Hooks, NetworkPolicy, Secret, Volume};
use crate::null;

/// Asks for a sandbox.
///
/// Exactly one of `image`, `snapshotId` and `templateId` says what it is made from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreateSandboxRequest {
    /// The image whose files the sandbox starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,
    /// The snapshot whose files the sandbox starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// The template that describes the whole sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_id: Option<String>,
    /// The operating system and processor that the sandbox must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Seconds until the sandbox ends by itself, 60 at least. Without it the sandbox lives until
    /// somebody deletes it.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(minimum = 60))]
    pub timeout: Option<i64>,
    /// Upper limits such as `cpu: "500m"` and `memory: "512Mi"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_limits: Option<BTreeMap<String, String>>,
    /// What a scheduler should set aside; a single host only checks that it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_requests: Option<BTreeMap<String, String>>,
    /// Environment of the entrypoint and of every command. A `null` value leaves the key out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, Option<String>>>,
    /// Labels for finding the sandbox again; they follow the rules of Kubernetes labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Programs to run before and during the sandbox's life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Hooks>,
    /// The program that the sandbox is for, and its arguments. One element with spaces is split
    /// the way a shell would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// What the sandbox may reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicy>,
    /// Adds secrets to outgoing requests without showing them to the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_proxy: Option<CredentialProxy>,
    /// Asks every caller of the sandbox's ports for a token that the endpoint answer carries.
    #[serde(default, deserialize_with = "null::or_default")]
    pub secure_access: bool,
    /// Storage to mount into the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<Volume>>,
    /// Settings outside the common protocol. Keys that begin with `opensandbox.extensions.` come
    /// back in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<BTreeMap<String, String>>,
}

/// Names an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ImageSpec {
    #[cfg_attr(feature = "schema", schema(examples("python:3.12")))]
    pub uri: String,
    /// What the registry asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<ImageAuth>,
}

/// Credentials for a registry; never returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ImageAuth {
    pub username: String,
    pub password: Secret,
}

/// An operating system and a processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Platform {
    /// `linux` or `windows`, in any case.
    #[cfg_attr(feature = "schema", schema(examples("linux")))]
    pub os: String,
    /// `amd64` or `arm64`, in any case.
    #[cfg_attr(feature = "schema", schema(examples("amd64")))]
    pub arch: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CredentialProxy {
    #[serde(default, deserialize_with = "null::or_default")]
    pub enabled: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explicit_nulls_and_unknown_keys_are_accepted() {
        let request: CreateSandboxRequest = serde_json::from_str(
            r#"{
                "image": {"uri": "host", "auth": null, "pullPolicy": "Always"},
                "snapshotId": null, "templateId": null, "platform": null, "timeout": null,
                "resourceLimits": null, "resourceRequests": null, "env": {"A": null, "B": "b"},
                "metadata": null, "lifecycle": null, "entrypoint": null, "networkPolicy": null,
                "credentialProxy": {"enabled": null}, "secureAccess": null, "volumes": null,
                "extensions": null, "somethingNew": [1, 2]
            }"#,
        )
        .expect("a request with nulls");
        assert_eq!(request.image.map(|image| image.uri).as_deref(), Some("host"));
        assert_eq!(request.timeout, None);
        assert!(!request.secure_access);
        assert_eq!(request.env.map(|env| env.len()), Some(2));
    }

    #[test]
    fn passwords_do_not_print() {
        let auth = ImageAuth { username: "u".to_owned(), password: Secret::new("hunter2") };
        assert!(!format!("{auth:?}").contains("hunter2"));
    }
}
