use serde::{Deserialize, Serialize};

use super::Time;

/// Asks for a pool of sandboxes that are started before anybody needs them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreatePoolRequest {
    /// A DNS name of at most 253 characters.
    pub name: String,
    /// What every sandbox of the pool looks like: a pod template.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub template: serde_json::Map<String, serde_json::Value>,
    pub capacity_spec: PoolCapacity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct UpdatePoolRequest {
    pub capacity_spec: PoolCapacity,
}

/// How many sandboxes a pool holds ready, and how many it holds at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolCapacity {
    pub buffer_max: u32,
    pub buffer_min: u32,
    pub pool_max: u32,
    pub pool_min: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    pub name: String,
    pub capacity_spec: PoolCapacity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PoolStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PoolStatus {
    pub total: u32,
    pub allocated: u32,
    pub available: u32,
    pub revision: String,
}

/// All pools; this list has no pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ListPoolsResponse {
    pub items: Vec<Pool>,
}
