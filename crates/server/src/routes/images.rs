//! Images on this machine: what there is, and how they come and go.

mod export;
mod gc;
mod import;
mod list;
mod names;
mod pull;
mod push;
mod stream;

use std::sync::Arc;

use osb_core::ImageName;
use osb_image::Image;
use osb_registry::{Digest, Reference};

pub(super) use self::{
    export::export,
    gc::gc,
    import::import,
    list::{inspect, list},
    names::{delete, tag},
    pull::pull,
    push::push,
};
use crate::{admission::admit_name, app::App, error::ApiError, library::Library, query};

/// The images of this server, if it has any.
fn library(app: &App) -> Result<&Arc<Library>, ApiError> {
    app.reconciler.library().ok_or_else(ApiError::no_images)
}

/// An image that is here.
fn find(library: &Library, name: &ImageName) -> Result<Image, ApiError> {
    library.images().find(name).map_err(|_| ApiError::no_image(name.as_str()))
}

/// What an image is to be called.
fn reference(name: &str) -> Result<Reference, ApiError> {
    let name = name.trim();
    if Digest::parse(name).is_ok() {
        return Err(ApiError::invalid("a digest alone is no name: it does not say where it is"));
    }
    Reference::parse(name).map_err(|error| ApiError::invalid(error.to_string()))
}

/// The parameter `name` of a query, which must be the name of an image.
fn named(query: Option<&str>) -> Result<ImageName, ApiError> {
    let name = parameter(query, "name").ok_or_else(|| ApiError::invalid("name is missing"))?;
    admit_name(&name)
}

fn parameter(query: Option<&str>, wanted: &str) -> Option<String> {
    let mut pairs = query::pairs(query.unwrap_or_default());
    pairs.find(|(key, _)| key == wanted).and_then(|(_, value)| value)
}
