//! Images on the server's machine: what it has, and how they come and go.
//!
//! This is not part of the published protocol. Whatever takes long answers with a stream of
//! [`ImageEvent`]s, one JSON document in a line, of which the last is `image` or `error`.

mod build;
mod event;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    build::{BuildCache, BuildRequest, BuildsResponse},
    event::{ImageEvent, LayerStage, OutputStream, PulledLayer},
};
use crate::lifecycle::{ImageAuth, Pagination, Time};

/// An image that is kept here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = KeptImage))]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Of its manifest; it names the image wherever a name does.
    #[cfg_attr(feature = "schema", schema(examples("sha256:…")))]
    pub digest: String,
    pub names: Vec<String>,
    /// Bytes as it is pulled and pushed.
    pub size: u64,
    /// Bytes of its files.
    pub unpacked: u64,
    /// Of both together, what no other image here needs: what removing it gives back.
    pub own: u64,
    pub layers: u64,
    /// How many sandboxes and snapshots stand on it.
    pub used_by: u64,
    /// When it was made, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// When it came here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    pub config: ImageConfig,
}

/// What programs in an image begin with, if nobody says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImageConfig {
    pub os: String,
    pub architecture: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exposed_ports: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// One page of images, in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ListImagesResponse {
    pub items: Vec<Image>,
    /// What all images take.
    pub usage: ImageUsage,
    pub pagination: Pagination,
}

/// What all images take, in bytes of content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ImageUsage {
    pub images: u64,
    /// As they are pulled and pushed.
    pub blobs: u64,
    /// Unpacked.
    pub layers: u64,
    /// Of both together, what more than one image needs.
    pub shared: u64,
    /// Of both together, what no image needs: a collection gives it back.
    pub unused: u64,
}

/// Which images to list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(utoipa::IntoParams),
    into_params(parameter_in = Query, rename_all = "camelCase")
)]
pub struct ListImagesQuery {
    #[cfg_attr(feature = "schema", param(required = false, minimum = 1, default = 1))]
    pub page: u64,
    #[cfg_attr(
        feature = "schema",
        param(required = false, minimum = 1, maximum = 200, default = 20)
    )]
    pub page_size: u64,
}

impl Default for ListImagesQuery {
    fn default() -> Self {
        Self { page: 1, page_size: 20 }
    }
}

/// Asks to get an image from a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullImageRequest {
    #[cfg_attr(feature = "schema", schema(examples("python:3.12")))]
    pub name: String,
    /// For the registry, and nobody else. It is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<ImageAuth>,
    /// Such as `linux/amd64`; that of the server if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
}

/// Asks to give an image to a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PushImageRequest {
    pub name: String,
    /// What the registry is to call it; the same if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// For the registry, and nobody else. It is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<ImageAuth>,
}

/// Asks to give an image another name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TagImageRequest {
    pub name: String,
    /// The other name, which is taken from the image that has it.
    pub tag: String,
}

/// What an archive held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ImportImagesResponse {
    pub items: Vec<ImportedImage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ImportedImage {
    pub digest: String,
    pub names: Vec<String>,
}

/// What a collection removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CollectImagesResponse {
    pub images: u64,
    pub layers: u64,
    pub blobs: u64,
    pub bytes: u64,
}
