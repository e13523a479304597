use std::sync::Arc;

use axum::{Router, body::Body, extract::State, response::Response, routing::get};
use http::{HeaderValue, Uri, header};
use osb_api::headers;

use super::Entrypoint;
use crate::{daemon::Daemon, error::ApiError, reply, request::Parameters};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(crate) fn routes() -> Router<Arc<Daemon>> {
    Router::new().route("/entrypoint", get(status)).route("/entrypoint/logs", get(logs))
}

async fn status(State(daemon): State<Arc<Daemon>>) -> Result<Response, ApiError> {
    Ok(reply::json(&entrypoint(&daemon)?.status()))
}

async fn logs(State(daemon): State<Arc<Daemon>>, uri: Uri) -> Result<Response, ApiError> {
    let entrypoint = entrypoint(&daemon)?;
    let output = &entrypoint.output;
    let parameters = Parameters::of(&uri)?;
    let cursor: u64 = match parameters.one("cursor") {
        None => 0,
        Some(text) => text.parse().map_err(|_| {
            ApiError::invalid(format!("the cursor {text:?} is not a number of bytes"))
        })?,
    };
    let since: Option<i64> = match parameters.one("since") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            ApiError::invalid(format!("the time {text:?} is not a number of milliseconds"))
        })?),
    };
    let cursor = cursor.max(since.map_or(0, |since| entrypoint.since(since)));
    let end = output.end();
    let mut response = Response::new(Body::from_stream(Arc::clone(output).stream(cursor, end)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, TEXT);
    headers.insert(headers::COMMAND_CURSOR, HeaderValue::from(end.max(cursor)));
    if let Some(since) = since {
        headers.insert(headers::OUTPUT_SINCE, HeaderValue::from(since));
    }
    Ok(response)
}

fn entrypoint(daemon: &Daemon) -> Result<&Entrypoint, ApiError> {
    daemon.entrypoint.as_ref().ok_or_else(ApiError::no_entrypoint)
}
