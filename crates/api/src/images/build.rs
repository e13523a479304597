use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lifecycle::{NetworkPolicy, Secret, Time};

/// What is to be built.
///
/// A build is asked for with a tar archive, which may be compressed: its first entry is
/// `build.json`, which is this, and everything below `context/` is the directory that is built.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BuildRequest {
    /// Where the Dockerfile is in the context, or what it is called in errors if it is not in it;
    /// `Dockerfile` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dockerfile: Option<String>,
    /// The Dockerfile itself, if it is not in the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// What the image is to be called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The stage that is wanted; the last if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// By their ids, in base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, Secret>,
    /// Do everything anew, also what was done before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_cache: bool,
    /// Such as `linux/amd64`; that of the server if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// No file of the image is newer than this, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_date_epoch: Option<i64>,
    /// What its steps may reach; what sandboxes without a policy do if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicy>,
    /// Limits of its steps, such as `cpu`, `memory` and `disk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_limits: Option<BTreeMap<String, String>>,
}

/// What builds left for the next ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BuildsResponse {
    /// How many steps are remembered, and need not be done again.
    pub steps: u64,
    /// Directories of `RUN --mount=type=cache`, the one that was used last first.
    pub caches: Vec<BuildCache>,
}

/// A directory that outlives builds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BuildCache {
    /// What the Dockerfile calls it.
    pub id: String,
    /// The kept volume that it is.
    pub volume: String,
    pub used_at: Time,
}
