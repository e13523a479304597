use std::collections::BTreeMap;

use axum::{
    Json as JsonBody,
    extract::{RawQuery, State},
};
use osb_api::images::{Image, ListImagesQuery, ListImagesResponse};
use osb_image::Listed;
use osb_registry::Digest;

use super::{find, library, named};
use crate::{app::App, error::ApiError, page, query, view};

/// Lists the images that are here, in the order in which they came.
pub(crate) async fn list(
    State(app): State<App>,
    RawQuery(raw): RawQuery,
) -> Result<JsonBody<ListImagesResponse>, ApiError> {
    let query = parse(raw.as_deref().unwrap_or_default())?;
    let images = library(&app)?.images();
    let (listed, usage) = (images.list(), images.usage());
    let users = app.reconciler.image_users();
    let (page, pagination) = page::cut(&listed, query.page, query.page_size);
    let items = page.iter().map(|listed| shown(listed, &users)).collect();
    Ok(JsonBody(ListImagesResponse { items, usage: view::image_usage(&usage), pagination }))
}

/// Shows an image.
pub(crate) async fn inspect(
    State(app): State<App>,
    RawQuery(raw): RawQuery,
) -> Result<JsonBody<Image>, ApiError> {
    let (library, name) = (library(&app)?, named(raw.as_deref())?);
    let digest = find(library, &name)?.digest;
    let listed = library.images().list().into_iter().find(|it| Some(&it.digest) == digest.as_ref());
    let listed = listed.ok_or_else(|| ApiError::no_image(name.as_str()))?;
    Ok(JsonBody(shown(&listed, &app.reconciler.image_users())))
}

fn shown(listed: &Listed, users: &BTreeMap<Digest, u64>) -> Image {
    view::image(listed, users.get(&listed.digest).copied().unwrap_or_default())
}

fn parse(raw: &str) -> Result<ListImagesQuery, ApiError> {
    let mut query = ListImagesQuery::default();
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
