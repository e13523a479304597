//! The table of routes. Each file below serves one resource.

mod access;
mod decisions;
mod diagnostics;
mod egress;
mod endpoints;
mod images;
mod images_build;
mod later;
mod metrics;
mod policy;
mod proxy;
mod sandboxes;
mod service;
mod snapshots;
mod templates;
mod vault;
mod volumes;

pub(crate) use self::{decisions::show as show_decision, proxy::reach};
use axum::{
    Router, middleware,
    routing::{any, delete, get, patch, post},
};

use crate::{app::App, auth, cors, error::ApiError, ingress, place::MOUNTS, request_id};

/// Everything that the server answers.
pub(crate) fn router(app: &App) -> Router {
    let mut routes = Router::new()
        .route("/health", get(service::health))
        .route("/version", get(service::version))
        .route("/openapi.json", get(service::openapi))
        .route("/metrics", get(metrics::show))
        .route("/v1/metrics/events", post(service::metrics));
    for mount in MOUNTS {
        let at = |path: &str| format!("{mount}{path}");
        routes = routes
            .route(&at("/sandboxes"), get(sandboxes::list).post(sandboxes::create))
            .route(&at("/sandboxes/{id}"), get(sandboxes::get).delete(sandboxes::delete))
            .route(&at("/sandboxes/{id}/metadata"), patch(sandboxes::metadata))
            .route(&at("/sandboxes/{id}/pause"), post(sandboxes::pause))
            .route(&at("/sandboxes/{id}/resume"), post(sandboxes::resume))
            .route(&at("/sandboxes/{id}/usage"), get(sandboxes::usage))
            .route(&at("/sandboxes/{id}/egress/log"), get(decisions::log))
            .route(&at("/sandboxes/{id}/diagnostics/logs"), get(diagnostics::logs))
            .route(&at("/sandboxes/{id}/diagnostics/events"), get(diagnostics::events))
            .route(&at("/sandboxes/{id}/diagnostics/inspect"), get(diagnostics::inspect))
            .route(&at("/sandboxes/{id}/diagnostics/summary"), get(diagnostics::summary))
            .route(&at("/sandboxes/{id}/renew-expiration"), post(sandboxes::renew))
            .route(
                &at("/sandboxes/{id}/networkpolicy"),
                get(policy::by_id).put(policy::by_id).patch(policy::by_id).delete(policy::by_id),
            )
            .route(&at("/networkpolicy"), get(policy::without))
            .route(&at("/sandboxes/{id}/snapshots"), post(snapshots::create))
            .route(&at("/snapshots"), get(snapshots::list))
            .route(&at("/snapshots/{id}"), get(snapshots::get).delete(snapshots::delete))
            .route(&at("/templates"), get(templates::list).post(templates::create))
            .route(&at("/templates/{id}"), get(templates::get).delete(templates::delete))
            .route(
                &at("/images/build"),
                get(images_build::left).post(images_build::build).delete(images_build::forget),
            )
            .route(&at("/volumes"), get(volumes::list))
            .route(&at("/volumes/{name}"), delete(volumes::delete))
            .route(&at("/images"), get(images::list).delete(images::delete))
            .route(&at("/images/inspect"), get(images::inspect))
            .route(&at("/images/tag"), post(images::tag))
            .route(&at("/images/pull"), post(images::pull))
            .route(&at("/images/push"), post(images::push))
            .route(&at("/images/import"), post(images::import))
            .route(&at("/images/export"), get(images::export))
            .route(&at("/images/gc"), post(images::gc))
            .route(&at("/sandboxes/{id}/endpoints/{port}"), get(endpoints::get))
            .route(&at("/sandboxes/{id}/proxy/{port}"), any(proxy::forward))
            .route(&at("/sandboxes/{id}/proxy/{port}/"), any(proxy::forward))
            .route(&at("/sandboxes/{id}/proxy/{port}/{*rest}"), any(proxy::forward))
            .merge(later::routes(mount));
    }
    let routes = routes
        .fallback(async || ApiError::no_route())
        .method_not_allowed_fallback(async || ApiError::wrong_method())
        .layer(middleware::from_fn_with_state(app.clone(), auth::require_key))
        .with_state(app.clone());
    // Without a key, other sites must not be able to use the server through a user's browser.
    let routes = if app.current().key.is_some() { cors::open(routes) } else { routes };
    // What is for a sandbox by its host or header is no concern of all these.
    let routes = routes.layer(middleware::from_fn_with_state(app.clone(), ingress::direct));
    routes.layer(middleware::from_fn(request_id::name))
}
