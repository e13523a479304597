//! What images are called.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use http::StatusCode;
use osb_api::{codes, images::TagImageRequest};
use osb_core::ImageName;
use osb_image::ImageError;
use osb_registry::{Digest, Reference};

use super::{find, library, named, reference};
use crate::{admission::admit_name, app::App, error::ApiError, extract::Json, library::Library};

/// Gives an image another name.
pub(crate) async fn tag(
    State(app): State<App>,
    Json(request): Json<TagImageRequest>,
) -> Result<StatusCode, ApiError> {
    let library = Arc::clone(library(&app)?);
    let (name, tag) = (admit_name(&request.name)?, reference(&request.tag)?);
    if tag.digest().is_some() {
        return Err(ApiError::invalid(
            "a digest is no name that can be given: leave out @ and what follows",
        ));
    }
    let image = find(&library, &name)?;
    let Some(digest) = image.digest.clone() else {
        return Err(ApiError::invalid(
            "the programs of this host are no image that could have other names: the operator \
             gives it some in images.aliases",
        ));
    };
    blocking(move || library.images().intake().name(&tag, &digest)).await?;
    drop(image);
    Ok(StatusCode::NO_CONTENT)
}

/// Takes a name away, or all names of the image with this digest. An image without one goes as soon
/// as no sandbox and no snapshot stands on it.
pub(crate) async fn delete(
    State(app): State<App>,
    RawQuery(raw): RawQuery,
) -> Result<StatusCode, ApiError> {
    let library = Arc::clone(library(&app)?);
    let name = named(raw.as_deref())?;
    if let Ok(digest) = Digest::parse(name.as_str()) {
        find(&library, &name)?;
        let users = app.reconciler.image_users().get(&digest).copied().unwrap_or_default();
        if users > 0 {
            return Err(ApiError::conflict(
                codes::IMAGE_IN_USE,
                format!(
                    "sandboxes, snapshots or templates stand on the image, {users} in all: remove them first"
                ),
            ));
        }
        blocking(move || unname_all(&library, &digest)).await?;
    } else if !unname(library, &name).await? {
        return Err(ApiError::no_image(name.as_str()));
    }
    // Whoever took the name away has no use for what becomes of the rest.
    drop(app.reconciler.collect());
    Ok(StatusCode::NO_CONTENT)
}

/// Whether anything had this name.
async fn unname(library: Arc<Library>, name: &ImageName) -> Result<bool, ApiError> {
    let reference = reference(name.as_str())?;
    blocking(move || library.images().unname(&reference)).await
}

fn unname_all(library: &Library, digest: &Digest) -> Result<(), ImageError> {
    let listed = library.images().list().into_iter().find(|it| it.digest == *digest);
    let names = listed.into_iter().flat_map(|it| it.names);
    for name in names.filter_map(|name| Reference::parse(&name).ok()) {
        library.images().unname(&name)?;
    }
    Ok(())
}

/// Names are on the disk, and whoever asks waits for it elsewhere.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)?;
    Ok(done?)
}
