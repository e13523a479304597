use serde::{Deserialize, Serialize};

use super::{Pagination, Time};

/// A volume that the server keeps under a name: what `pvc` of a sandbox's volumes asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeptVolume {
    pub name: String,
    /// What its files take on the disk. Absent if it has so many that counting takes long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The sandboxes that use it. It cannot be deleted before they are.
    pub used_by: Vec<String>,
    /// Whether it goes with the last sandbox that uses it.
    pub delete_on_sandbox_termination: bool,
    pub created_at: Time,
}

/// One page of kept volumes, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ListVolumesResponse {
    pub items: Vec<KeptVolume>,
    pub pagination: Pagination,
}

/// Which kept volumes to list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(utoipa::IntoParams),
    into_params(parameter_in = Query, rename_all = "camelCase")
)]
pub struct ListVolumesQuery {
    #[cfg_attr(feature = "schema", param(required = false, minimum = 1, default = 1))]
    pub page: u64,
    #[cfg_attr(
        feature = "schema",
        param(required = false, minimum = 1, maximum = 200, default = 20)
    )]
    pub page_size: u64,
}

impl Default for ListVolumesQuery {
    fn default() -> Self {
        Self { page: 1, page_size: 20 }
    }
}
