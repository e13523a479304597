//! What the server says of itself.

use axum::{Json as JsonBody, extract::State, response::IntoResponse};
use http::{StatusCode, header};
use osb_api::{
    ErrorBody,
    lifecycle::{Health, MetricsEvent, Version},
};
use utoipa::OpenApi;

use crate::{app::App, extract::Json};

/// Says that the server answers.
#[utoipa::path(get, path = "/health", tag = "service", security(()),
    responses((status = 200, body = Health)))]
pub(super) async fn health() -> JsonBody<Health> {
    JsonBody(Health { status: "healthy".to_owned() })
}

/// Says which version it is.
#[utoipa::path(get, path = "/version", tag = "service", security(()),
    responses((status = 200, body = Version)))]
pub(super) async fn version() -> JsonBody<Version> {
    JsonBody(Version { version: env!("CARGO_PKG_VERSION").to_owned() })
}

pub(super) async fn openapi(State(app): State<App>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], app.openapi.clone())
}

/// Takes what a client measured.
#[utoipa::path(post, path = "/v1/metrics/events", tag = "service", request_body = MetricsEvent,
    responses((status = 204), (status = 400, body = ErrorBody)))]
pub(super) async fn metrics(Json(event): Json<MetricsEvent>) -> StatusCode {
    let MetricsEvent { create_duration_ms, success, .. } = event;
    tracing::debug!(elapsed_ms = create_duration_ms, success, "a client measured a creation");
    StatusCode::NO_CONTENT
}

#[derive(OpenApi)]
#[openapi(paths(health, version, metrics))]
pub(crate) struct Documented;
