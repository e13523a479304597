use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Pagination, Time};
use crate::null;

/// Asks to build a template. Unknown keys are refused: a build that ignores a setting costs
/// minutes before anybody notices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTemplateRequest {
    /// The image to build from.
    pub image: String,
    /// Where other servers put the finished template. This one keeps it, and gives this back as it
    /// came.
    #[cfg_attr(feature = "schema", schema(examples("s3://bucket/prefix")))]
    pub publish: String,
    /// `cpu`, `memory` and `disk` of sandboxes made from the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_limits: Option<BTreeMap<String, String>>,
    /// What runs in the sandboxes; without one, `tail -f /dev/null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Environment of the sandboxes, over that of the image. Names are those of shell variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Labels for finding the template again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    /// How other servers write it down. It makes no difference here.
    #[serde(default, deserialize_with = "null::or_default")]
    pub format: TemplateFormat,
}

/// When a sandbox counts as warm enough to be kept as a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Readiness {
    /// A command that succeeds once the sandbox is ready, plain or as `cmd://…`; or
    /// `tcp://127.0.0.1:PORT`, a port of the sandbox that takes connections then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(examples("tcp://127.0.0.1:8000")))]
    pub probe: Option<String>,
    /// How long it goes on from then on before its files are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_seconds: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TemplateFormat {
    Native,
    #[default]
    Overlaybd,
}

/// A sandbox prepared once and started many times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Template {
    pub template_id: String,
    pub image: String,
    pub publish: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_limits: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    pub format: TemplateFormat,
    pub status: TemplateStatus,
    pub created_at: Time,
    pub updated_at: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TemplateStatus {
    pub phase: TemplatePhase,
    /// What is kept, once it is: `snapshot:` and an id, `@` and the digest of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_ref: Option<String>,
    /// What went wrong, or how far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum TemplatePhase {
    Pending,
    Building,
    Succeeded,
    Failed,
}

/// One page of templates, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ListTemplatesResponse {
    pub items: Vec<Template>,
    pub pagination: Pagination,
}

/// Which templates to list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(utoipa::IntoParams),
    into_params(parameter_in = Query, rename_all = "camelCase")
)]
pub struct ListTemplatesQuery {
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

impl Default for ListTemplatesQuery {
    fn default() -> Self {
        Self { metadata: BTreeMap::new(), page: 1, page_size: 20 }
    }
}
