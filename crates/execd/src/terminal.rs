//! Terminals: shells that clients attach to over WebSocket, leave, and come back to.

mod attachment;
mod history;
mod process;
mod registry;
mod request;
mod session;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::StatusCode;
use osb_api::execd::{CreatePty, PtyCreated, PtyMode};

pub(crate) use registry::Terminals;

use crate::{
    blocking::blocking,
    daemon::Daemon,
    error::ApiError,
    reply,
    request::{self as body, Parameters},
    websocket::Handshake,
};
use attachment::{Wish, converse};
use request::Order;

pub(crate) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route("/pty", post(create))
        .route("/pty/{id}", get(status).delete(remove))
        .route("/pty/{id}/ws", get(attach))
}

/// `POST /pty`.
async fn create(State(daemon): State<Arc<Daemon>>, content: Body) -> Result<Response, ApiError> {
    let asked: Option<CreatePty> = body::optional_json(content).await?;
    let worker = Arc::clone(&daemon);
    let order = blocking(move || {
        let order = Order::new(&worker, asked.unwrap_or_default())?;
        let made = worker.environment.make_directory(&order.cwd);
        made.map_err(|error| ApiError::runtime(&error))?;
        Ok(order)
    })
    .await?;
    let terminal = Terminals::add(&daemon, order)?;
    let created = PtyCreated { session_id: terminal.id.to_string() };
    Ok((StatusCode::CREATED, reply::json(&created)).into_response())
}

/// `GET /pty/{id}`.
async fn status(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let terminal = daemon.terminals.find(&id).ok_or_else(|| no_terminal(&id))?;
    Ok(reply::json(&terminal.status()))
}

/// `DELETE /pty/{id}`.
async fn remove(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let terminal = daemon.terminals.take(&id).ok_or_else(|| no_terminal(&id))?;
    // To the end, also if the caller does not wait for it.
    drop(daemon.tasks.spawn(async move { terminal.remove().await }).await);
    Ok(reply::empty())
}

/// `GET /pty/{id}/ws`.
async fn attach(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let parameters = Parameters::of(request.uri())?;
    let terminal = daemon.terminals.find(&id).ok_or_else(|| no_terminal(&id))?;
    let mode = if parameters.one("pty") == Some("0") { PtyMode::Pipe } else { PtyMode::Pty };
    let since = parameters.one("since").map_or(Ok(0), str::parse);
    let since = since.map_err(|_| ApiError::invalid("`since` is not a count of bytes"))?;
    let takes_over = parameters.one("takeover") == Some("1");

    let handshake = Handshake::read(&mut request);
    if terminal.is_held() && !(takes_over && handshake.is_ok()) {
        return Err(ApiError::already_connected());
    }
    let handshake = handshake?;
    let granted = handshake.grant();
    let place = terminal.take_place();
    let wish = Wish { since, mode };
    daemon.tasks.spawn(converse(Arc::clone(&daemon), place, handshake.upgrade, wish));
    Ok(granted)
}

fn no_terminal(id: &str) -> ApiError {
    ApiError::no_context(format!("there is no terminal {id:?}"))
}
