use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Platform, Time};

/// The answer to a request for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreateSandboxResponse {
    pub id: String,
    pub status: SandboxStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    pub created_at: Time,
    pub entrypoint: Vec<String>,
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// What the sandbox was made from, in place of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Only if the request named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    pub status: SandboxStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<BTreeMap<String, String>>,
    /// The pool that the sandbox came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
    pub entrypoint: Vec<String>,
    /// When the sandbox ends by itself; absent if it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    pub created_at: Time,
}

/// An image as answers name it: without credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Image {
    pub uri: String,
}

/// Where a sandbox is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxStatus {
    /// `Pending`, `Running`, `Pausing`, `Paused`, `Resuming`, `Stopping`, `Terminated` or
    /// `Failed`. Clients should expect words that they do not know.
    #[cfg_attr(feature = "schema", schema(examples("Running")))]
    pub state: String,
    /// A word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(examples("CONTAINER_RUNNING")))]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_at: Option<Time>,
}

/// How a sandbox came out of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    pub mode: AllocationMode,
    pub pool_ref: String,
    pub state: AllocationState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum AllocationMode {
    Pool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum AllocationState {
    Allocated,
}

/// One page of sandboxes, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ListSandboxesResponse {
    pub items: Vec<Sandbox>,
    pub pagination: Pagination,
}

/// Where a page lies in the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pagination {
    /// The first page is 1.
    pub page: u64,
    pub page_size: u64,
    pub total_items: u64,
    pub total_pages: u64,
    pub has_next_page: bool,
}

impl Pagination {
    /// Page `page` of `total_items` things, `page_size` on each.
    pub fn new(page: u64, page_size: u64, total_items: u64) -> Self {
        let total_pages = total_items.div_ceil(page_size.max(1));
        Self { page, page_size, total_items, total_pages, has_next_page: page < total_pages }
    }
}

/// Which sandboxes to list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(utoipa::IntoParams),
    into_params(parameter_in = Query, rename_all = "camelCase")
)]
pub struct ListSandboxesQuery {
    /// States to include, in any case; may be repeated. All if absent.
    pub state: Vec<String>,
    /// `key=value&key=value`, percent-encoded as one value: labels that must all match.
    #[cfg_attr(
        feature = "schema",
        param(value_type = Option<String>, required = false, example = "team%3Da")
    )]
    pub metadata: BTreeMap<String, String>,
    #[cfg_attr(feature = "schema", param(required = false, minimum = 1, default = 1))]
    pub page: u64,
    #[cfg_attr(
        feature = "schema",
        param(required = false, minimum = 1, maximum = 200, default = 20)
    )]
    pub page_size: u64,
}

impl Default for ListSandboxesQuery {
    fn default() -> Self {
        Self { state: Vec::new(), metadata: BTreeMap::new(), page: 1, page_size: 20 }
    }
}

/// Labels to change: text sets a label, `null` removes it, absent ones stay.
pub type MetadataPatch = BTreeMap<String, Option<String>>;

/// When the sandbox is to end instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RenewExpirationRequest {
    /// Any moment in the future, also one before the current expiry.
    pub expires_at: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RenewExpirationResponse {
    pub expires_at: Time,
}

#[cfg(test)]
mod tests {
    use super::Pagination;

    #[test]
    fn the_last_page_has_no_next() {
        assert_eq!(Pagination::new(1, 20, 0).total_pages, 0);
        assert!(!Pagination::new(1, 20, 0).has_next_page);
        assert!(Pagination::new(1, 2, 3).has_next_page);
        assert!(!Pagination::new(2, 2, 3).has_next_page);
        assert!(!Pagination::new(9, 2, 3).has_next_page);
    }
}
