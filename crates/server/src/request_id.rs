//! One id per request, in the log and in the answer.

use std::time::Instant;

use axum::{extract::Request, middleware::Next, response::Response};
use http::HeaderValue;
use osb_api::headers;
use tracing::Instrument;
use uuid::Uuid;

const MAX: usize = 128;

/// Runs the request in a span of its own and names it in the answer.
pub(crate) async fn name(request: Request, next: Next) -> Response {
    let id = sent(&request).unwrap_or_else(|| Uuid::new_v4().simple().to_string());
    let span = tracing::info_span!("request", request_id = id, method = %request.method());
    let begun = Instant::now();
    async move {
        let mut response = next.run(request).await;
        let elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(status = response.status().as_u16(), elapsed_ms, "answered");
        if let Ok(value) = HeaderValue::try_from(id) {
            response.headers_mut().insert(headers::REQUEST_ID, value);
        }
        response
    }
    .instrument(span)
    .await
}

/// The id that the client chose, if it can stand in a log as it is.
fn sent(request: &Request) -> Option<String> {
    let id = request.headers().get(headers::REQUEST_ID)?.to_str().ok()?.trim();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&b);
    (!id.is_empty() && id.len() <= MAX && id.bytes().all(plain)).then(|| id.to_owned())
}
