//! Routes of the protocol that this daemon does not offer, so that a caller learns that it is not
//! the path that is wrong.

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};

use crate::{command, daemon::Daemon, error::ApiError};

macro_rules! unsupported {
    ($($name:ident = $what:literal,)*) => {
        $(pub(super) async fn $name() -> ApiError {
            ApiError::not_supported($what)
        })*
    };
}

unsupported! {
    code = "code contexts",
}

pub(super) fn table() -> Router<Arc<Daemon>> {
    Router::new()
        .route("/code", post(code).delete(command::interrupt))
        .route("/code/context", post(code))
        .route("/code/contexts", get(code).delete(code))
        .route("/code/contexts/{id}", get(code).delete(code))
}
