use serde::{Deserialize, Serialize};

use super::{Pagination, Time};

/// Asks to keep a sandbox's files. The body may be missing altogether.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CreateSnapshotRequest {
    /// A name for people; several snapshots may share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1))]
    pub name: Option<String>,
}

/// A sandbox's files as they once were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    pub id: String,
    /// The sandbox whose files these are.
    pub sandbox_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub status: SnapshotStatus,
    pub created_at: Time,
    /// The content of its own files, without that of what it stands on; once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// `Creating`, `Ready`, `Failed` or `Deleting`.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_at: Option<Time>,
}

/// One page of snapshots, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ListSnapshotsResponse {
    pub items: Vec<Snapshot>,
    pub pagination: Pagination,
}

/// Which snapshots to list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(utoipa::IntoParams),
    into_params(parameter_in = Query, rename_all = "camelCase")
)]
pub struct ListSnapshotsQuery {
    pub sandbox_id: Option<String>,
    /// The exact name.
    pub name: Option<String>,
    /// States to include; may be repeated. All if absent.
    pub state: Vec<String>,
    #[cfg_attr(feature = "schema", param(required = false, minimum = 1, default = 1))]
    pub page: u64,
    #[cfg_attr(
        feature = "schema",
        param(required = false, minimum = 1, maximum = 200, default = 20)
    )]
    pub page_size: u64,
}

impl Default for ListSnapshotsQuery {
    fn default() -> Self {
        Self { sandbox_id: None, name: None, state: Vec::new(), page: 1, page_size: 20 }
    }
}
