//! Isolated sessions: shells in a sandbox within the sandbox.
//!
//! Each is a second execd in namespaces of its own, put together by the [`crate::isolator`]. Nobody
//! else has a way to it: connections are made here and handed over one by one. What a caller asks
//! of a session is asked of that execd, by the routes that it has anyway.

mod environment;
mod files;
mod maker;
mod request;
mod run;
mod session;
mod table;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    response::Response,
    routing::{any, get, post},
};
use http::StatusCode;
use osb_api::execd::{
    CreateIsolated, Hardening, HardeningState, IsolatedCapabilities, IsolatedCreated, IsolatedList,
};

pub(crate) use maker::Source;
pub(crate) use table::Isolation;

use crate::{blocking::blocking, daemon::Daemon, error::ApiError, reply, request as body};

pub(crate) fn routes() -> Router<Arc<Daemon>> {
    let one = "/v1/isolated/session/{id}";
    Router::new()
        .route("/v1/isolated/capabilities", get(capabilities))
        .route("/v1/isolated/sessions", get(list))
        .route("/v1/isolated/session", post(create))
        .route(one, get(describe).delete(remove))
        .route(&format!("{one}/run"), post(run::run))
        .route(&format!("{one}/runs/{{run}}"), get(run::status))
        .route(&format!("{one}/runs/{{run}}/logs"), get(run::logs))
        .route(&format!("{one}/diff"), get(not_kept))
        .route(&format!("{one}/commit"), post(not_kept))
        .route(&format!("{one}/files"), any(files::forward))
        .route(&format!("{one}/files/{{*path}}"), any(files::forward))
        .route(&format!("{one}/directories"), any(files::forward))
        .route(&format!("{one}/directories/{{*path}}"), any(files::forward))
}

async fn create(State(daemon): State<Arc<Daemon>>, content: Body) -> Result<Response, ApiError> {
    let asked: CreateIsolated = body::json(content).await?;
    let worker = Arc::clone(&daemon);
    let order = blocking(move || request::validate(&worker, asked)).await?;
    let session = table::open(&daemon, order).await?;
    let mut response = reply::json(&IsolatedCreated {
        session_id: session.id,
        created_at: session.created_at,
        request: session.request.clone(),
    });
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

async fn list(State(daemon): State<Arc<Daemon>>) -> Response {
    reply::json(&IsolatedList { sessions: daemon.isolation.list() })
}

async fn describe(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    Ok(reply::json(&daemon.isolation.get(&id)?.describe()))
}

async fn remove(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    daemon.isolation.remove(&id).await?;
    Ok(reply::empty())
}

async fn not_kept(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    daemon.isolation.get(&id)?;
    Err(ApiError::not_supported_now("telling or keeping what an isolated session changed"))
}

async fn capabilities(State(daemon): State<Arc<Daemon>>) -> Response {
    let unavailable = daemon.isolation.unavailable();
    let available = unavailable.is_none();
    let layer = |state: &str, message: &str| HardeningState {
        state: state.to_owned(),
        message: message.to_owned(),
    };
    let hardening = Hardening {
        init_mode: "pid1".to_owned(),
        signal_shield: true,
        cap_drop: layer("active", ""),
        seccomp: layer("active", ""),
        landlock: layer("disabled", "its own mounts confine the session"),
        ebpf: layer("disabled", "nothing in the session is observed"),
    };
    reply::json(&IsolatedCapabilities {
        available,
        isolator: available.then(|| "execd".to_owned()),
        version: available.then(|| env!("CARGO_PKG_VERSION").to_owned()),
        message: unavailable,
        setpriv_available: available,
        userns_available: available,
        commit_supported: false,
        diff_supported: false,
        hardening: available.then_some(hardening),
    })
}
