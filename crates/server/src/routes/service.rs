//! What the server says of itself.

use axum::{Json as JsonBody, response::IntoResponse};
use http::{StatusCode, header};
use osb_api::lifecycle::{Health, MetricsEvent, Version};

use crate::extract::Json;

/// The lifecycle API as `cargo xtask spec` describes it.
const DOCUMENT: &str = include_str!("../../../../specs/lifecycle.json");

/// Says that the server answers.
pub(super) async fn health() -> JsonBody<Health> {
    JsonBody(Health { status: "healthy".to_owned() })
}

/// Says which version it is.
pub(super) async fn version() -> JsonBody<Version> {
    JsonBody(Version { version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// Describes everything that can be asked.
pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}

/// Takes what a client measured.
pub(super) async fn metrics(Json(event): Json<MetricsEvent>) -> StatusCode {
    let MetricsEvent { create_duration_ms, success, .. } = event;
    tracing::debug!(elapsed_ms = create_duration_ms, success, "a client measured a creation");
    StatusCode::NO_CONTENT
}
