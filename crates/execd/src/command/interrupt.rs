use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::Uri;

use crate::{daemon::Daemon, error::ApiError, reply, request::Parameters};

/// `DELETE /command` and `DELETE /code`: ends whatever runs under the id. Answers once it is gone.
pub(crate) async fn interrupt(
    State(daemon): State<Arc<Daemon>>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&uri)?;
    let id = parameters.one("id").ok_or_else(|| ApiError::missing_query("id"))?;
    if daemon.contexts.interrupt(id).await.is_some() {
        return Ok(reply::empty());
    }
    if let Some(interrupted) = daemon.commands.interrupt(&daemon, id).await {
        interrupted?;
        return Ok(reply::empty());
    }
    if daemon.sessions.interrupt(id).await == Some(true) {
        return Ok(reply::empty());
    }
    Err(ApiError::refused(format!("nothing runs under the id {id:?}")))
}

impl super::Commands {
    /// Ends a command with all that comes from it. None if it is not known.
    async fn interrupt(&self, daemon: &Daemon, id: &str) -> Option<Result<(), ApiError>> {
        let command = self.get(id)?;
        let Some(family) = command.family() else {
            return Some(Err(ApiError::refused(format!("the command {id} is not running"))));
        };
        // A task of its own: what is begun is brought to its end, whoever waits for it.
        drop(daemon.tasks.spawn(async move { family.interrupt().await }).await);
        command.settled().await;
        Some(Ok(()))
    }
}
