//! Answers that tell how far something is: one JSON document in a line.

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header;
use osb_api::images::{ImageEvent, ImportedImage};

use crate::error::ApiError;

/// An answer of these events.
pub(crate) fn events(events: impl Stream<Item = ImageEvent> + Send + 'static) -> Response {
    let lines = events.map(|event| line(&event));
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

fn line(event: &ImageEvent) -> Result<Bytes, serde_json::Error> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line.into())
}

/// The last event.
pub(crate) fn last(outcome: Result<ImportedImage, ApiError>) -> ImageEvent {
    match outcome {
        Ok(image) => ImageEvent::Image(image),
        Err(error) => ImageEvent::Error(error.into_body()),
    }
}
