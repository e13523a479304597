//! Stopping a sandbox with its memory kept, and letting it go on.

use axum::extract::State;
use http::StatusCode;
use osb_api::{SandboxId, codes};
use osb_core::{Goal, Phase};

use crate::{app::App, error::ApiError, extract::Id};

/// Stops every process of the sandbox; its memory is kept. Its expiry is not.
pub(crate) async fn pause(State(app): State<App>, Id(id): Id) -> Result<StatusCode, ApiError> {
    change(&app, id, &PAUSE).await
}

/// Lets a paused sandbox go on.
pub(crate) async fn resume(State(app): State<App>, Id(id): Id) -> Result<StatusCode, ApiError> {
    change(&app, id, &RESUME).await
}

struct Change {
    from: Phase,
    to: Phase,
    goal: Goal,
    refused: (&'static str, &'static str),
    failed: (&'static str, &'static str),
}

const PAUSE: Change = Change {
    from: Phase::Running,
    to: Phase::Paused,
    goal: Goal::Paused,
    refused: (codes::SANDBOX_NOT_RUNNING, "only a running sandbox can be paused"),
    failed: (codes::SANDBOX_PAUSE_FAILED, "the sandbox could not be paused; it runs on"),
};

const RESUME: Change = Change {
    from: Phase::Paused,
    to: Phase::Running,
    goal: Goal::Running,
    refused: (codes::SANDBOX_NOT_PAUSED, "only a paused sandbox can be resumed"),
    failed: (codes::SANDBOX_RESUME_FAILED, "the sandbox could not be resumed; it stays paused"),
};

async fn change(app: &App, id: SandboxId, wanted: &'static Change) -> Result<StatusCode, ApiError> {
    let mut versions = app.store.index().subscribe(id).ok_or_else(|| ApiError::no_sandbox(id))?;
    if !app.reconciler.can_pause() {
        return Err(ApiError::conflict(
            codes::NOT_SUPPORTED,
            "the runtime of this server cannot pause sandboxes",
        ));
    }
    let asked = app.store.update(id, move |record| {
        // One that sleeps until somebody uses it can be made to stay.
        let stays = record.desired.goal == Goal::Asleep && wanted.goal == Goal::Paused;
        if !stays && record.phase() != wanted.from || record.desired.goal == Goal::Removed {
            let (code, rule) = wanted.refused;
            let state = record.phase();
            return Err(ApiError::conflict(code, format!("{rule}, and this one is {state}")));
        }
        record.desired.goal = wanted.goal;
        record.requests += 1;
        Ok(())
    });
    let asked = asked.await.map_err(|unchanged| unchanged.answer(id))?;

    let settled = versions.wait_for(|record| {
        // It is there; it was given up; it ended; or somebody else asked for something else.
        record.phase() == wanted.to
            || record.desired.goal != wanted.goal
            || record.phase().is_over()
            || record.requests != asked.requests
    });
    let Ok(settled) = tokio::time::timeout(app.patience, settled).await else {
        return Ok(StatusCode::ACCEPTED);
    };
    let Ok(record) = settled else { return Err(ApiError::no_sandbox(id)) };
    if record.phase() == wanted.to || record.requests != asked.requests {
        return Ok(StatusCode::ACCEPTED);
    }
    if record.phase().is_over() {
        return Err(ApiError::conflict(wanted.refused.0, "the sandbox ended meanwhile"));
    }
    let (code, message) = wanted.failed;
    Err(ApiError::failed(code, message))
}
