use std::{error::Error, io};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use osb_api::{ErrorBody, codes};
use osb_core::Chain;
use osb_gateway::{GatewayError, Stage};
use osb_sys::fs::PathError;

use crate::reply;

/// An answer that is not a success. This is the only module that knows the status of each.
///
/// Messages carry their causes: the paths in them are the caller's own.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// The length of the file, for a range outside of it.
    size: Option<u64>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), size: None }
    }

    /// The body or a parameter must change.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, codes::INVALID_REQUEST_BODY, message)
    }

    pub(crate) fn body_too_large(limit: usize) -> Self {
        let message = format!("the body is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, codes::BODY_TOO_LARGE, message)
    }

    pub(crate) fn missing_query(name: &str) -> Self {
        let message = format!("the query parameter `{name}` is missing");
        Self::new(StatusCode::BAD_REQUEST, codes::MISSING_QUERY, message)
    }

    pub(crate) fn no_session(id: &str) -> Self {
        let message = format!("there is no session {id:?}");
        Self::new(StatusCode::NOT_FOUND, codes::CONTEXT_NOT_FOUND, message)
    }

    /// The upload is not a form, or its parts do not pair up.
    pub(crate) fn form(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, codes::INVALID_FILE, message)
    }

    pub(crate) fn upload_metadata(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, codes::INVALID_FILE_METADATA, message)
    }

    pub(crate) fn upload_content(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, codes::INVALID_FILE_CONTENT, message)
    }

    pub(crate) fn unsatisfiable(range: &str, size: u64) -> Self {
        let message = format!("the range {range:?} is not within the file's {size} bytes");
        let error = Self::new(StatusCode::RANGE_NOT_SATISFIABLE, codes::UNKNOWN, message);
        Self { size: Some(size), ..error }
    }

    /// No session, context or terminal has this id.
    pub(crate) fn no_context(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, codes::CONTEXT_NOT_FOUND, message)
    }

    /// Nothing runs code of this language. A bad request and no other status: of those that are the
    /// caller's fault, published clients read the body of this one alone.
    pub(crate) fn no_language(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, codes::LANGUAGE_NOT_AVAILABLE, message)
    }

    /// The terminal has a client.
    pub(crate) fn already_connected() -> Self {
        let message = "another client is attached to this terminal";
        Self::new(StatusCode::CONFLICT, codes::ALREADY_CONNECTED, message)
    }

    /// There are as many as there may be.
    pub(crate) fn too_many(what: &str, most: usize) -> Self {
        let message = format!("there are {most} {what} already: remove one first");
        Self::new(StatusCode::TOO_MANY_REQUESTS, codes::TOO_BUSY, message)
    }

    /// As [`ApiError::too_many`], for what is not counted in pieces.
    pub(crate) fn too_busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, codes::TOO_BUSY, message)
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "the header X-EXECD-ACCESS-TOKEN is missing or wrong";
        Self::new(StatusCode::UNAUTHORIZED, codes::UNAUTHORIZED, message)
    }

    pub(crate) fn no_route(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, codes::NOT_FOUND, format!("no route has the path {path}"))
    }

    pub(crate) fn no_entrypoint() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            codes::NOT_FOUND,
            "this execd was started without a program",
        )
    }

    pub(crate) fn no_method(method: &http::Method, path: &str) -> Self {
        let message = format!("{path} does not answer {method}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, codes::METHOD_NOT_ALLOWED, message)
    }

    pub(crate) fn no_command(id: &str) -> Self {
        let message = format!("no command has the id {id:?}");
        Self::new(StatusCode::NOT_FOUND, codes::INVALID_REQUEST_BODY, message)
    }

    pub(crate) fn not_supported(what: &str) -> Self {
        let message = format!("this execd does not offer {what}");
        Self::new(StatusCode::NOT_IMPLEMENTED, codes::EXECD_NOT_SUPPORTED, message)
    }

    /// As [`ApiError::not_supported`], with the status that isolated sessions give it.
    pub(crate) fn not_supported_now(what: &str) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, ..Self::not_supported(what) }
    }

    /// Isolated sessions are not possible here, or not now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, codes::SERVICE_UNAVAILABLE, message)
    }

    pub(crate) fn no_isolated(id: &str) -> Self {
        let message = format!("no isolated session has the id {id:?}");
        Self::new(StatusCode::NOT_FOUND, codes::CONTEXT_NOT_FOUND, message)
    }

    pub(crate) fn no_run(id: &str) -> Self {
        let message = format!("no run has the id {id:?}");
        Self::new(StatusCode::NOT_FOUND, codes::CONTEXT_NOT_FOUND, message)
    }

    pub(crate) fn isolated_ended(id: uuid::Uuid) -> Self {
        let message = format!("the isolated session {id} has ended");
        Self::new(StatusCode::NOT_FOUND, codes::CONTEXT_NOT_FOUND, message)
    }

    /// The operating system refused, in a way that no other answer fits.
    pub(crate) fn runtime(error: &(dyn Error + 'static)) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, codes::RUNTIME_ERROR, Chain(error).to_string())
    }

    /// As [`ApiError::runtime`], for what has no error of its own.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, codes::RUNTIME_ERROR, message)
    }
}

impl From<GatewayError> for ApiError {
    fn from(error: GatewayError) -> Self {
        let unreachable =
            |message| Self::new(StatusCode::BAD_GATEWAY, codes::BACKEND_CONNECTION_FAILED, message);
        match error {
            GatewayError::NotFound(_) => unreachable("nothing listens there".to_owned()),
            GatewayError::Refused { port, .. } => {
                unreachable(format!("nothing listens on port {port}"))
            }
            GatewayError::Timeout { port, stage: Stage::Accept, .. } => {
                unreachable(format!("the service on port {port} takes no connections"))
            }
            GatewayError::Failed { source, .. } => unreachable(Chain(&*source).to_string()),
            GatewayError::Timeout { port, stage: Stage::Answer, .. } => {
                let message = format!("the service on port {port} did not answer in time");
                Self::new(StatusCode::GATEWAY_TIMEOUT, codes::BACKEND_TIMEOUT, message)
            }
            GatewayError::Broken { port, source, .. } => {
                let message = format!("the service on port {port} broke off: {}", Chain(&*source));
                Self::new(StatusCode::BAD_GATEWAY, codes::BACKEND_RESPONSE_FAILED, message)
            }
            GatewayError::BadRequest(message) => Self::invalid(message),
            GatewayError::Busy => {
                let message = "too many requests are being forwarded: try again later";
                Self::new(StatusCode::TOO_MANY_REQUESTS, codes::TOO_BUSY, message)
            }
        }
    }
}

impl From<PathError> for ApiError {
    fn from(error: PathError) -> Self {
        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            let message = Chain(&error).to_string();
            return Self::new(StatusCode::NOT_FOUND, codes::FILE_NOT_FOUND, message);
        }
        Self::runtime(&error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody { code: self.code.to_owned(), message: self.message };
        let json = serde_json::to_vec(&body).expect("invariant: two strings are always JSON");
        let mut response = Response::new(Body::from(json));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, reply::JSON);
        if let Some(size) = self.size
            && let Ok(value) = HeaderValue::from_str(&format!("bytes */{size}"))
        {
            response.headers_mut().insert(header::CONTENT_RANGE, value);
        }
        response
    }
}
