//! Routes of the protocol that this version does not serve: they say so.

use axum::{Router, routing::get};
use osb_api::codes;

use crate::{app::App, error::ApiError};

pub(super) fn routes(mount: &str) -> Router<App> {
    let at = |path: &str| format!("{mount}{path}");
    Router::new()
        .route(&at("/sandboxes/{id}/diagnostics/logs"), get(diagnostics))
        .route(&at("/sandboxes/{id}/diagnostics/events"), get(diagnostics))
        .route(&at("/sandboxes/{id}/diagnostics/inspect"), get(diagnostics))
        .route(&at("/sandboxes/{id}/diagnostics/summary"), get(diagnostics))
        .route(&at("/pools"), get(pools).post(pools))
        .route(&at("/pools/{name}"), get(pools).put(pools).delete(pools))
}

async fn diagnostics() -> ApiError {
    ApiError::not_implemented(
        codes::DIAGNOSTICS_NOT_IMPLEMENTED,
        "this server does not serve diagnostics yet",
    )
}

async fn pools() -> ApiError {
    ApiError::not_implemented(
        codes::POOL_NOT_SUPPORTED,
        "this server does not serve pools: its operator configures them",
    )
}
