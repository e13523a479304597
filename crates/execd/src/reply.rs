//! Answers that are a success.

use axum::{body::Body, response::Response};
use http::{HeaderValue, header};
use serde::Serialize;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// An answer without content. It says so with a length of 0: some clients look for nothing else.
pub(crate) fn empty() -> Response {
    let mut response = Response::new(Body::empty());
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    response
}

pub(crate) fn json(value: &impl Serialize) -> Response {
    let json = serde_json::to_vec(value).expect("invariant: our answers have string keys");
    let mut response = Response::new(Body::from(json));
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// A stream of events, which nothing on the way may hold back.
pub(crate) fn events(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, EVENTS);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
