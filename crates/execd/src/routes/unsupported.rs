//! Routes of the protocol that this daemon does not offer, so that a caller learns that it is not
//! the path that is wrong.

use std::sync::Arc;

use axum::{
    Router,
    routing::{any, delete, get, post},
};

use crate::{daemon::Daemon, error::ApiError};

macro_rules! unsupported {
    ($($name:ident = $what:literal,)*) => {
        $(pub(super) async fn $name() -> ApiError {
            ApiError::not_supported($what)
        })*
    };
}

unsupported! {
    interrupt = "interrupting commands",
    background = "background commands",
    sessions = "shell sessions",
    code = "code contexts",
    change_files = "this operation on files",
    directories = "operations on directories",
    proxy = "a proxy to other ports",
    isolated = "isolated sessions",
    identity = "files as another user",
}

pub(super) fn table() -> Router<Arc<Daemon>> {
    Router::new()
        .route("/command/status/{id}", get(background))
        .route("/command/{id}/logs", get(background))
        .route("/session", post(sessions))
        .route("/session/{id}", delete(sessions))
        .route("/session/{id}/run", post(sessions))
        .route("/code", post(code).delete(code))
        .route("/code/context", post(code))
        .route("/code/contexts", get(code).delete(code))
        .route("/code/contexts/{id}", get(code).delete(code))
        .route("/files/permissions", post(change_files))
        .route("/files/mv", post(change_files))
        .route("/files/search", get(change_files))
        .route("/files/replace", post(change_files))
        .route("/directories", post(directories).delete(directories))
        .route("/directories/list", get(directories))
        .route("/proxy/{port}", any(proxy))
        .route("/proxy/{port}/", any(proxy))
        .route("/proxy/{port}/{*path}", any(proxy))
        .route("/v1/isolated/{*path}", any(isolated))
        .route("/v1/filesystem/{uid}/{gid}/{*path}", any(identity))
}
