use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::Response,
};

use crate::{daemon::Daemon, error::ApiError, reply};

/// `GET /command/status/{id}`.
pub(super) async fn status(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let command = daemon.commands.get(&id).ok_or_else(|| ApiError::no_command(&id))?;
    Ok(reply::json(&command.status()))
}
