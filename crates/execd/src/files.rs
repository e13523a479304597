//! Files and directories of the sandbox.
//!
//! Whatever the kernel checks by the identity of the caller goes through a `scope`; what is open
//! already is read and written by anybody.

mod copy;
mod download;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod info;
mod line_range;
mod listing;
mod multipart;
mod ownership;
mod pattern;
mod range;
mod remove;
mod rename;
mod replace;
mod replacement;
mod scope;
mod status;
mod upload;
mod validators;
mod walk;
mod watch;

use std::sync::Arc;

use axum::{
    Router,
    routing::{delete, get, post},
};

use crate::daemon::Daemon;

/// The routes, with the rights of the daemon and with those of any user.
pub(crate) fn routes() -> Router<Arc<Daemon>> {
    let files = Router::new()
        .route("/files", delete(remove::remove_files))
        .route("/files/info", get(info::info))
        .route("/files/permissions", post(ownership::permissions))
        .route("/files/mv", post(rename::rename))
        .route("/files/search", get(listing::search))
        .route("/files/replace", post(replace::replace))
        .route("/files/upload", post(upload::upload))
        .route("/files/download", get(download::download))
        .route("/files/watch", get(watch::watch))
        .route("/directories/list", get(listing::list))
        .route(
            "/directories",
            post(ownership::create_directories).delete(remove::remove_directories),
        );
    files.clone().nest("/v1/filesystem/{uid}/{gid}", files)
}
