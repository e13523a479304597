use serde::{Deserialize, Serialize};

use super::Secret;
use crate::null;

/// Storage that is not the sandbox's own. Exactly one of `host`, `pvc`, `ossfs` and `tmpfs` says
/// where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Unique within the sandbox; a DNS label.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostVolume>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PvcVolume>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ossfs: Option<OssfsVolume>,
    /// An extension of this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmpfs: Option<TmpfsVolume>,
    /// Where the sandbox sees it: an absolute path.
    pub mount_path: String,
    #[serde(default, deserialize_with = "null::or_default")]
    pub read_only: bool,
    /// The part of the volume to mount: a relative path without `..`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
}

/// A directory or file of the host, below a prefix that the operator allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HostVolume {
    pub path: String,
}

/// A named volume that the runtime keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PvcVolume {
    pub claim_name: String,
    /// Makes the volume if it is missing.
    #[serde(default = "null::yes", deserialize_with = "null::or_true")]
    pub create_if_not_exists: bool,
    /// Removes a volume that was made for this sandbox together with it.
    #[serde(default, deserialize_with = "null::or_default")]
    pub delete_on_sandbox_termination: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_modes: Option<Vec<String>>,
}

/// New, empty memory that counts as memory of the sandbox and is gone with it. An extension: other
/// servers do not know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TmpfsVolume {
    /// The most that it holds, such as `64Mi`.
    pub size: String,
}

/// A bucket of an object store, mounted as files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OssfsVolume {
    pub bucket: String,
    pub endpoint: String,
    pub access_key_id: String,
    pub access_key_secret: Secret,
    #[serde(default, deserialize_with = "null::or_default")]
    pub version: OssfsVersion,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum OssfsVersion {
    #[serde(rename = "1.0")]
    One,
    #[default]
    #[serde(rename = "2.0")]
    Two,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_with_every_key_null_has_its_defaults() {
        let volume: Volume = serde_json::from_str(
            r#"{"name": "data", "mountPath": "/data", "readOnly": null, "subPath": null,
                "pvc": {"claimName": "c", "createIfNotExists": null, "storageClass": null,
                        "deleteOnSandboxTermination": null, "storage": null, "accessModes": null}}"#,
        )
        .expect("a volume");
        let claim = volume.pvc.expect("a claim");
        assert!(claim.create_if_not_exists);
        assert!(!claim.delete_on_sandbox_termination);
    }
}
