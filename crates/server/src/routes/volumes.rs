//! Volumes that the runtime keeps under names.

use axum::{
    Json as JsonBody,
    extract::{RawQuery, State},
};
use http::{StatusCode, Uri};
use osb_api::{
    codes,
    lifecycle::{ListVolumesQuery, ListVolumesResponse},
};
use osb_core::{KeptVolume, RuntimeError, VolumeProblem, Volumes};

use crate::{app::App, error::ApiError, page, place, query, view};

/// Lists the volumes that are kept, in the order of their names.
pub(super) async fn list(
    State(app): State<App>,
    RawQuery(raw): RawQuery,
) -> Result<JsonBody<ListVolumesResponse>, ApiError> {
    let query = parse(raw.as_deref().unwrap_or_default())?;
    let power = power(&app)?;
    let volumes = power.list().await.map_err(ApiError::internal)?;
    let (shown, pagination) = page::cut(&volumes, query.page, query.page_size);
    let names: Vec<_> = shown.iter().map(|volume| volume.name.clone()).collect();
    let sizes = power.sizes(&names).await.map_err(ApiError::internal)?;
    let view = |(volume, bytes): (&KeptVolume, _)| view::volume(volume, bytes);
    let items = shown.iter().zip(sizes).map(view).collect::<Result<_, _>>();
    Ok(JsonBody(ListVolumesResponse { items: items.map_err(ApiError::internal)?, pagination }))
}

fn parse(raw: &str) -> Result<ListVolumesQuery, ApiError> {
    let mut query = ListVolumesQuery::default();
    for (key, value) in query::pairs(raw) {
        let value = value.unwrap_or_default();
        match key.as_str() {
            "page" => query.page = page::number(&value)?,
            "pageSize" => query.page_size = page::size(&value)?,
            _ => {}
        }
    }
    Ok(query)
}

/// Deletes a volume with everything in it, unless a sandbox uses it.
pub(super) async fn delete(State(app): State<App>, uri: Uri) -> Result<StatusCode, ApiError> {
    let name = place::below("/volumes/", uri.path());
    match power(&app)?.remove(name).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(RuntimeError::Volume { problem: VolumeProblem::NotFound, .. }) => {
            Err(ApiError::no_volume(name))
        }
        Err(RuntimeError::Volume { problem: VolumeProblem::InUse, message }) => {
            Err(ApiError::conflict(codes::VOLUME_IN_USE, message))
        }
        Err(error) => Err(ApiError::internal(error)),
    }
}

fn power(app: &App) -> Result<&dyn Volumes, ApiError> {
    app.reconciler.volumes().ok_or_else(|| {
        ApiError::not_implemented(
            codes::NOT_SUPPORTED,
            "the runtime of this server keeps no volumes",
        )
    })
}
