//! Commands: validated, started, followed, and remembered.

mod background;
mod foreground;
mod interrupt;
mod logs;
mod registry;
mod request;
mod settings;
mod start;
mod status;

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    response::Response,
    routing::{get, post},
};
use osb_api::execd::RunCommand;
use tokio::sync::oneshot;

pub(crate) use interrupt::interrupt;
pub(crate) use registry::Commands;
pub(crate) use settings::{OnDisconnect, Settings};

use crate::{
    daemon::Daemon,
    error::ApiError,
    events, reply,
    request::{self as body},
};
use start::Started;

pub(crate) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route("/command", post(run).delete(interrupt))
        .route("/command/status/{id}", get(status::status))
        .route("/command/{id}/logs", get(logs::logs))
}

/// `POST /command`.
async fn run(State(daemon): State<Arc<Daemon>>, content: Body) -> Result<Response, ApiError> {
    execute(daemon, body::json(content).await?).await
}

/// Runs a command, and answers with its events.
pub(crate) async fn execute(daemon: Arc<Daemon>, asked: RunCommand) -> Result<Response, ApiError> {
    let (answer, answered) = oneshot::channel();
    // A task of its own: whoever asks and leaves at once has asked all the same.
    daemon.tasks.clone().spawn(begin(daemon, asked, answer));
    let ended = || ApiError::refused("execd is about to end");
    Ok(reply::events(answered.await.map_err(|_| ended())??))
}

type Answer = oneshot::Sender<Result<Body, ApiError>>;

/// Starts a command, answers, and follows it to its end.
async fn begin(daemon: Arc<Daemon>, asked: RunCommand, answer: Answer) {
    // If nobody waits for the answer any more, the follower finds that out by itself.
    let say = |said| drop(answer.send(said));
    match start::start(&daemon, asked).await {
        Err(error) => say(Err(error)),
        Ok(Started::Not(frames)) => say(Ok(Body::from(frames))),
        Ok(Started::Background(started, frames)) => {
            say(Ok(Body::from(frames)));
            started.follow().await;
        }
        Ok(Started::Foreground(started, frames)) => {
            let (client, body) = events::channel();
            client.try_send(Bytes::from(frames)).expect("invariant: a new channel has room");
            say(Ok(body));
            started.follow(client).await;
        }
    }
}
