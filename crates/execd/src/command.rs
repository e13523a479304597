//! Commands: validated, started, and streamed as events.

mod request;
mod run;

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use osb_api::execd::RunCommand;

use crate::{daemon::Daemon, error::ApiError, reply, request as body};

/// `POST /command`.
pub(crate) async fn run(
    State(daemon): State<Arc<Daemon>>,
    content: Body,
) -> Result<Response, ApiError> {
    let asked: RunCommand = body::json(content).await?;
    let order = request::validate(&daemon, asked)?;
    Ok(reply::events(run::start(&daemon, order)))
}
