use axum::{Json as JsonBody, extract::State};
use osb_api::images::CollectImagesResponse;

use super::library;
use crate::{app::App, error::ApiError, view};

/// Removes what nobody needs, and says what that was.
pub(crate) async fn gc(
    State(app): State<App>,
) -> Result<JsonBody<CollectImagesResponse>, ApiError> {
    library(&app)?;
    let collected = app.reconciler.collect().await.map_err(ApiError::internal)??;
    Ok(JsonBody(view::collected(collected)))
}
