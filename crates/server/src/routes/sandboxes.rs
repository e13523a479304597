//! Sandboxes: made, found, changed and ended.

mod change;
mod list;
mod pause;
mod usage;

use axum::{Json as JsonBody, extract::State};
use http::{HeaderName, StatusCode, Uri, header};
use osb_api::{
    codes,
    lifecycle::{CreateSandboxRequest, CreateSandboxResponse, Sandbox},
};
use osb_core::Goal;

pub(super) use self::{
    change::{metadata, renew},
    list::{labels, list},
    pause::{pause, resume},
    usage::usage,
};
use crate::{
    admission,
    app::App,
    error::ApiError,
    extract::{Id, Json},
    place, view,
};

/// Makes a sandbox.
///
/// Answers once it runs; one that needs longer than 25 seconds is answered as `Pending`. A sandbox
/// that cannot be started leaves nothing behind, and neither does one whose client went away.
pub(super) async fn create(
    State(app): State<App>,
    uri: Uri,
    Json(request): Json<CreateSandboxRequest>,
) -> Result<(StatusCode, [(HeaderName, String); 1], JsonBody<CreateSandboxResponse>), ApiError> {
    let login = admission::login(request.image.as_ref(), &app.reconciler)?;
    let record =
        admission::admit(request, app.limits(), &app.store, &app.reconciler, app.clock.now())?;
    let record = app.reconciler.create(record, login, app.patience).wait().await?;
    let location = format!("{}/sandboxes/{}", place::mount(uri.path()), record.id());
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], JsonBody(view::created(&record))))
}

/// Shows a sandbox.
pub(super) async fn get(State(app): State<App>, Id(id): Id) -> Result<JsonBody<Sandbox>, ApiError> {
    Ok(JsonBody(view::sandbox(&*app.record(id)?)))
}

/// Removes a sandbox and everything in it.
///
/// Answers once it is gone. A removal that fails is tried again until it succeeds; until then the
/// sandbox is `Stopping`.
pub(super) async fn delete(State(app): State<App>, Id(id): Id) -> Result<StatusCode, ApiError> {
    let mut versions = app.store.index().subscribe(id).ok_or_else(|| ApiError::no_sandbox(id))?;
    let asked = app
        .store
        .update(id, |record| {
            record.desired.goal = Goal::Removed;
            record.requests += 1;
            Ok(())
        })
        .await
        .map_err(|unchanged| unchanged.answer(id))?;
    let failed = versions.wait_for(|record| record.failed_removals > asked.failed_removals);
    let gone = tokio::time::timeout(app.patience, failed).await.is_ok_and(|failed| failed.is_err());
    if gone {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::failed(
        codes::SANDBOX_DELETE_FAILED,
        "the sandbox could not be removed yet; it is tried again until it is gone",
    ))
}
