//! What handlers take from a request. Axum's own extractors answer in plain text; these do not.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Request},
};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header, request::Parts};
use http_body_util::BodyExt;
use osb_api::{SandboxId, SnapshotId, TemplateId};
use serde::de::DeserializeOwned;

use crate::{
    app::App,
    error::ApiError,
    place::{self, SandboxPath},
};

/// How long a client may take to send a body of at most a megabyte.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// How much of a body that is too large is read and thrown away, so that the client gets to see
/// the answer instead of a broken connection.
const DRAINED: usize = 16 << 20;

/// The sandbox that the path names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Id(pub(crate) SandboxId);

impl FromRequestParts<App> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let id = SandboxPath::parse(parts.uri.path()).map(|path| path.id).unwrap_or_default();
        id.parse().map(Self).map_err(|_| ApiError::no_sandbox(id))
    }
}

/// The snapshot that the path names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshotted(pub(crate) SnapshotId);

impl FromRequestParts<App> for Snapshotted {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let id = place::below("/snapshots/", parts.uri.path());
        id.parse().map(Self).map_err(|_| ApiError::no_snapshot(id))
    }
}

/// The template that the path names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Templated(pub(crate) TemplateId);

impl FromRequestParts<App> for Templated {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let id = place::below("/templates/", parts.uri.path());
        id.parse().map(Self).map_err(|_| ApiError::no_template(id))
    }
}

/// A body of JSON.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

/// A body of JSON, or none.
#[derive(Debug)]
pub(crate) struct OptionalJson<T>(pub(crate) Option<T>);

impl<T: DeserializeOwned> FromRequest<App> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        if axum::body::HttpBody::is_end_stream(request.body()) {
            return Ok(Self(None));
        }
        let Json(body) = Json::<Option<T>>::from_request(request, app).await?;
        Ok(Self(body))
    }
}

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        serde_json::from_slice(&json_bytes(request, app).await?)
            .map(Self)
            .map_err(|error| ApiError::invalid(format!("the body cannot be accepted: {error}")))
    }
}

/// The message without the values that it quotes, one of which may be a secret in the wrong place.
pub(crate) fn without_values(message: &str) -> String {
    for what in ["unknown field", "unknown variant"] {
        let told = message.strip_prefix(what).and_then(|rest| rest.rsplit_once("`, expected"));
        if let Some((_, expected)) = told {
            return format!("{what} …, expected{expected}");
        }
    }
    // Texts are in quotes; numbers are not, and nothing but values is wrong in itself.
    let quotes: &[char] = if message.starts_with("invalid") { &['"', '`'] } else { &['"'] };
    match (message.find(quotes), message.rfind(quotes)) {
        (Some(first), Some(last)) if first < last => {
            let before = message.get(..first).unwrap_or_default();
            let after = message.get(last + 1..).unwrap_or_default();
            format!("{before}…{after}")
        }
        _ => message.to_owned(),
    }
}

/// The body of a request that must be JSON, as it came.
pub(crate) async fn json_bytes(request: Request, app: &App) -> Result<Bytes, ApiError> {
    let is_json = is_json(request.headers());
    let body = bytes(request, app).await?;
    // A browser sends JSON to other sites only after asking; everything else it just sends.
    if !is_json {
        return Err(ApiError::invalid(
            "the body must be JSON: send it with Content-Type: application/json",
        ));
    }
    Ok(body)
}

/// The body of a request, whatever it is said to be.
pub(crate) async fn bytes(request: Request, app: &App) -> Result<Bytes, ApiError> {
    let (parts, body) = request.into_parts();
    tokio::time::timeout(BODY_WITHIN, read(&parts.headers, body, app.max_body_bytes))
        .await
        .map_err(|_| ApiError::invalid("the body did not arrive in time"))?
}

async fn read(headers: &HeaderMap, mut body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) && headers.contains_key(header::EXPECT) {
        return Err(ApiError::body_too_large(limit));
    }
    let mut whole = BytesMut::new();
    let mut total = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::invalid("the body broke off"))?;
        let Some(data) = frame.data_ref() else { continue };
        total = total.saturating_add(data.len());
        if total <= limit {
            whole.extend_from_slice(data);
        } else if total > limit.saturating_add(DRAINED) {
            break;
        }
    }
    if total > limit { Err(ApiError::body_too_large(limit)) } else { Ok(whole.freeze()) }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()) else {
        return false;
    };
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json"
        || essence.starts_with("application/") && essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use osb_api::egress::CreateVaultRequest;

    use super::*;

    #[test]
    fn no_message_quotes_a_value() {
        let error = serde_json::from_str::<CreateVaultRequest>(r#"{"credentials": "hunter\"2"}"#);
        let message = without_values(&error.unwrap_err().to_string());
        assert!(!message.contains("hunter"), "{message}");
        assert!(message.contains("invalid type: string …, expected"), "{message}");
        assert_eq!(without_values("missing field `name`"), "missing field `name`");
        for body in [
            r#"{"hunter`2": 1}"#,
            r#"{"credentials": [{"name": "a", "source": {"type": "hunter2"}}]}"#,
        ] {
            let error = serde_json::from_str::<CreateVaultRequest>(body);
            let message = without_values(&error.unwrap_err().to_string());
            assert!(!message.contains("hunter"), "{message}");
            assert!(message.contains("expected"), "{message}");
        }
    }
}
