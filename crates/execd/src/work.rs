//! Whether something that somebody asked for is at work, for whoever decides about the sandbox.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, response::Response, routing::get};
use futures_util::future::join_all;
use osb_api::execd::Work;
use tokio::time::timeout;

use crate::{daemon::Daemon, reply};

/// How long an isolated session may take to say what it does. One that says nothing does nothing.
const SAID_WITHIN: Duration = Duration::from_secs(1);

pub(crate) fn routes() -> Router<Arc<Daemon>> {
    Router::new().route("/work", get(count))
}

/// `GET /work`. The entrypoint is not counted, nor is an interpreter or a shell that waits.
async fn count(State(daemon): State<Arc<Daemon>>) -> Response {
    let here = daemon.commands.running()
        + daemon.sessions.running()
        + daemon.contexts.running()
        + daemon.terminals.running();
    let sessions = daemon.isolation.active();
    let isolated = join_all(sessions.iter().map(|session| async {
        timeout(SAID_WITHIN, session.running(&daemon)).await.unwrap_or_default()
    }));
    let isolated: usize = isolated.await.into_iter().sum();
    reply::json(&Work { running: u64::try_from(here + isolated).unwrap_or(u64::MAX) })
}
