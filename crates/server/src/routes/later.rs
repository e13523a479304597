//! Routes of the protocol that this version does not serve: they say so.

use axum::{Router, routing::get};
use osb_api::codes;

use crate::{app::App, error::ApiError};

pub(super) fn routes(mount: &str) -> Router<App> {
    let at = |path: &str| format!("{mount}{path}");
    Router::new()
        .route(&at("/pools"), get(pools).post(pools))
        .route(&at("/pools/{name}"), get(pools).put(pools).delete(pools))
}

async fn pools() -> ApiError {
    ApiError::not_implemented(
        codes::POOL_NOT_SUPPORTED,
        "this server does not serve pools: its operator configures them",
    )
}
