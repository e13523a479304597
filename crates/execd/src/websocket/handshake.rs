use axum::{body::Body, response::Response};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version, header};
use hyper::upgrade::OnUpgrade;

use crate::error::ApiError;

/// What the protocol mixes into every key, so that nothing but a WebSocket answers as one.
const MIXED_IN: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A request to speak WebSocket that can be granted.
#[derive(Debug)]
pub(crate) struct Handshake {
    accept: HeaderValue,
    pub(crate) upgrade: OnUpgrade,
}

impl Handshake {
    pub(crate) fn read<B>(request: &mut Request<B>) -> Result<Self, ApiError> {
        let headers = request.headers();
        let asked = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && lists(headers, &header::CONNECTION, "upgrade")
            && lists(headers, &header::UPGRADE, "websocket");
        if !asked {
            return Err(ApiError::invalid("this route speaks WebSocket only"));
        }
        let version = headers.get(header::SEC_WEBSOCKET_VERSION);
        if version.is_none_or(|version| version != "13") {
            return Err(ApiError::invalid("the version of WebSocket must be 13"));
        }
        let accept = headers.get(header::SEC_WEBSOCKET_KEY).and_then(accept);
        let accept = accept.ok_or_else(|| ApiError::invalid("the WebSocket key is not one"))?;
        let upgrade = request.extensions_mut().remove::<OnUpgrade>();
        let upgrade =
            upgrade.ok_or_else(|| ApiError::invalid("this connection cannot be upgraded"))?;
        Ok(Self { accept, upgrade })
    }

    /// The answer that ends HTTP on this connection.
    pub(crate) fn grant(&self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept.clone());
        response
    }
}

/// What proves to the client that its key was understood. The key is sixteen bytes in base64.
fn accept(key: &HeaderValue) -> Option<HeaderValue> {
    let key = key.to_str().ok()?;
    BASE64_STANDARD.decode(key).ok().filter(|bytes| bytes.len() == 16)?;
    let digest = sha1_smol::Sha1::from(format!("{key}{MIXED_IN}")).digest();
    HeaderValue::try_from(BASE64_STANDARD.encode(digest.bytes())).ok()
}

/// Whether a header that is a list has this element.
fn lists(headers: &HeaderMap, name: &header::HeaderName, element: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(element))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_answered_as_the_protocol_says() {
        let answer = |key| accept(&HeaderValue::from_static(key));
        // The example of RFC 6455, 1.3.
        assert_eq!(answer("dGhlIHNhbXBsZSBub25jZQ==").unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for wrong in ["", "AAAA", "dGhlIHNhbXBsZSBub25jZQ", "not base64 at all!!"] {
            assert_eq!(answer(wrong), None, "{wrong:?}");
        }
    }
}
