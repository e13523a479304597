//! The table of routes.

use std::sync::Arc;

use axum::{Router, response::Response, routing::get};
use http::{Method, Uri};

use crate::{
    code, command, daemon::Daemon, entrypoint, error::ApiError, files, isolated, metrics, proxy,
    reply, session, terminal, work,
};

pub(crate) fn table() -> Router<Arc<Daemon>> {
    Router::new()
        .route("/ping", get(ping))
        .merge(code::routes())
        .merge(command::routes())
        .merge(entrypoint::routes())
        .merge(files::routes())
        .merge(metrics::routes())
        .merge(isolated::routes())
        .merge(proxy::routes())
        .merge(session::routes())
        .merge(terminal::routes())
        .merge(work::routes())
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
}

async fn ping() -> Response {
    reply::empty()
}

async fn no_route(uri: Uri) -> ApiError {
    ApiError::no_route(uri.path())
}

async fn no_method(method: Method, uri: Uri) -> ApiError {
    ApiError::no_method(&method, uri.path())
}
