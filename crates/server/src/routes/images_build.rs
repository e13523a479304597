//! Building images.

use axum::{
    Json as JsonBody,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, header};

use osb_api::images::BuildsResponse;

use crate::{
    app::App,
    builds::{Most, Ready},
    error::ApiError,
};

/// Builds an image.
///
/// The body is an archive: first `build.json`, then the directory that is built below `context/`. What
/// is wrong with it, or with the Dockerfile, is an ordinary error. Otherwise the answer is a line for
/// each thing that happens, the last of which is the image or why there is none. Whoever stops reading
/// ends the build.
pub(super) async fn build(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let builds = app.builds.as_ref().ok_or_else(ApiError::no_builds)?;
    let ticket = builds.enter()?;
    let (parcelled, ticket) = builds.receive(request.into_body(), ticket).await?;
    let ready = {
        let app = app.clone();
        let check = move || Ready::check(&app, parcelled, ticket);
        tokio::task::spawn_blocking(check).await.map_err(ApiError::internal)??
    };
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(ready.build(app))).into_response())
}

/// Shows what builds left for the next ones.
pub(super) async fn left(State(app): State<App>) -> Result<JsonBody<BuildsResponse>, ApiError> {
    let app = app.clone();
    let look = move || {
        let builds = app.builds.as_ref().ok_or_else(ApiError::no_builds)?;
        builds.left().map(JsonBody).map_err(ApiError::internal)
    };
    tokio::task::spawn_blocking(look).await.map_err(ApiError::internal)?
}

/// Forgets it. What is in use stays, and images that were kept for builds alone go with the next
/// collection.
pub(super) async fn forget(State(app): State<App>) -> Result<StatusCode, ApiError> {
    let builds = app.builds.as_ref().ok_or_else(ApiError::no_builds)?;
    builds.forget(&app, Most::Nothing).await;
    Ok(StatusCode::NO_CONTENT)
}
