//! Wire types of the diagnostics API: what happened in and around a sandbox.

use serde::{Deserialize, Serialize};

use crate::lifecycle::Time;

/// Logs or events of a sandbox, in the answer itself or behind a URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Diagnostics {
    pub sandbox_id: String,
    pub kind: DiagnosticsKind,
    /// The scope that was asked for.
    pub scope: String,
    pub delivery: Delivery,
    #[cfg_attr(feature = "schema", schema(examples("text/plain; charset=utf-8")))]
    pub content_type: String,
    /// With [`Delivery::Inline`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// In bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_length: Option<u64>,
    /// With [`Delivery::Url`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_url: Option<String>,
    /// Until when the URL answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// Whether there was more than the content shows.
    pub truncated: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DiagnosticsKind {
    Logs,
    Events,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    Inline,
    Url,
}

/// Which logs to show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct LogsQuery {
    /// `container` or `all`, in any case. Without it the answer is plain text.
    pub scope: Option<String>,
    /// How many lines from the end.
    #[cfg_attr(feature = "schema", param(minimum = 1, maximum = 10000, default = 100))]
    pub tail: Option<u32>,
    /// How far back: a whole number of `s`, `m`, `h` or `d`.
    #[cfg_attr(feature = "schema", param(pattern = "^[0-9]+[smhd]$", example = "10m"))]
    pub since: Option<String>,
    /// Refused: a sandbox is one container.
    pub container: Option<String>,
}

/// Which events to show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct EventsQuery {
    /// `runtime` is what the runtime saw, `lifecycle` that and what was asked for, `network` what the
    /// sandbox tried to reach, and `all` all of it; in any case. Without it the answer is plain text.
    pub scope: Option<String>,
    /// How many, the latest.
    #[cfg_attr(feature = "schema", param(minimum = 1, maximum = 500, default = 50))]
    pub limit: Option<u32>,
}

/// How much the summary holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct SummaryQuery {
    /// How many lines of the logs.
    #[cfg_attr(feature = "schema", param(minimum = 1, maximum = 10000, default = 50))]
    pub tail: Option<u32>,
    /// How many events.
    #[cfg_attr(feature = "schema", param(minimum = 1, maximum = 500, default = 20))]
    pub event_limit: Option<u32>,
}
