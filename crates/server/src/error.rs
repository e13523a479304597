//! What clients and the log see of an error. The only file that turns errors into statuses.

mod image;

pub(crate) use self::image::Errand;

use std::{error::Error, fmt};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use osb_api::codes;
use osb_build::{BuildError, ContextError, Problem};
use osb_core::{Chain, InvalidLabel, RuntimeError, VolumeProblem};
use osb_egress::{PolicyError, vault::VaultError};
use osb_gateway::GatewayError;

use crate::{
    reconcile::{NotCreated, NotKept},
    store::{StoreError, Unchanged},
};

/// An answer that is not a success.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// Goes to the log, never to the client.
    cause: Option<Box<dyn Error + Send + Sync>>,
    retry_after_seconds: Option<u32>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), cause: None, retry_after_seconds: None }
    }

    fn caused_by(self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }

    /// The request must change.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::invalid_as(codes::INVALID_PARAMETER, message)
    }

    /// The same with a code of its own.
    pub(crate) fn invalid_as(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// The request asks for something that this server does not do.
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::invalid_as(codes::NOT_SUPPORTED, message)
    }

    /// The whole route does nothing on this server.
    pub(crate) fn not_implemented(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, code, message)
    }

    /// The sandbox is not in a state for that.
    pub(crate) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    pub(crate) fn unauthorized(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, code, message)
    }

    /// The fields of the request contradict each other.
    pub(crate) fn contradictory(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, codes::INVALID_PARAMETER, message)
    }

    pub(crate) fn vault_invalid(message: impl Into<String>) -> Self {
        Self::invalid_as(codes::VAULT_INVALID, message)
    }

    pub(crate) fn vault_not_ready() -> Self {
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            codes::VAULT_NOT_READY,
            "this sandbox has no credential proxy: create it with credentialProxy.enabled",
        )
    }

    pub(crate) fn vault_tls_required() -> Self {
        Self::new(
            StatusCode::UPGRADE_REQUIRED,
            codes::VAULT_TLS_REQUIRED,
            "this server takes secrets over TLS only",
        )
    }

    pub(crate) fn vault_forbidden() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            codes::VAULT_FORBIDDEN,
            "what is in force is shown to nobody",
        )
    }

    pub(crate) fn no_sandbox(id: impl fmt::Display) -> Self {
        let id: String = id.to_string().chars().take(64).collect();
        let message = format!("no sandbox has the id {id:?}: it ended, was deleted, or never was");
        Self::new(StatusCode::NOT_FOUND, codes::SANDBOX_NOT_FOUND, message)
    }

    pub(crate) fn no_snapshot(id: impl fmt::Display) -> Self {
        let id: String = id.to_string().chars().take(64).collect();
        let message = format!("no snapshot has the id {id:?}: it was deleted, or never was");
        Self::new(StatusCode::NOT_FOUND, codes::SNAPSHOT_NOT_FOUND, message)
    }

    pub(crate) fn no_template(id: impl fmt::Display) -> Self {
        let id: String = id.to_string().chars().take(64).collect();
        let message = format!("no template has the id {id:?}: it was deleted, or never was");
        Self::new(StatusCode::NOT_FOUND, codes::TEMPLATE_NOT_FOUND, message)
    }

    pub(crate) fn no_volume(name: &str) -> Self {
        let name: String = name.chars().take(64).collect();
        let message = format!("no volume is kept under the name {name:?}");
        Self::new(StatusCode::NOT_FOUND, codes::VOLUME_PVC_NOT_FOUND, message)
    }

    /// The host lies below the gateway's domain and is no port of a sandbox.
    pub(crate) fn no_destination() -> Self {
        let message = "no sandbox has this host: ask for {port}-{sandbox id}, below the domain";
        Self::new(StatusCode::NOT_FOUND, codes::NOT_FOUND, message)
    }

    pub(crate) fn signature_invalid() -> Self {
        Self::unauthorized(
            codes::SIGNATURE_INVALID,
            "the address is not signed for this port of this sandbox: ask for a new one",
        )
    }

    pub(crate) fn signature_expired() -> Self {
        Self::unauthorized(
            codes::SIGNATURE_EXPIRED,
            "the address was good until a moment that has passed: ask for a new one",
        )
    }

    /// A sandbox that sleeps does not wake in time.
    pub(crate) fn wakes_too_slowly() -> Self {
        let message = "the sandbox was paused because nobody used it, and is still being resumed";
        Self {
            retry_after_seconds: Some(1),
            ..Self::new(StatusCode::GATEWAY_TIMEOUT, codes::BACKEND_TIMEOUT, message)
        }
    }

    pub(crate) fn no_route() -> Self {
        Self::new(StatusCode::NOT_FOUND, codes::NOT_FOUND, "no route has this path")
    }

    pub(crate) fn wrong_method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            codes::METHOD_NOT_ALLOWED,
            "this path does not take that method: the Allow header names those it takes",
        )
    }

    pub(crate) fn body_too_large(limit: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            codes::BODY_TOO_LARGE,
            format!("the body is larger than {limit} bytes, the most that this route reads"),
        )
    }

    /// Something failed that the caller cannot mend.
    pub(crate) fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::failed(codes::INTERNAL_ERROR, "the server failed; its log says why").caused_by(cause)
    }

    /// The same with a code and a sentence of its own.
    pub(crate) fn failed(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, message)
    }

    /// No images are built here.
    pub(crate) fn no_builds() -> Self {
        Self::not_implemented(
            codes::NOT_SUPPORTED,
            "this server builds no images: only the native runtime does",
        )
    }

    /// Whoever sends a body leaves it lying.
    pub(crate) fn body_too_slow(least: usize, within: std::time::Duration) -> Self {
        let message = format!(
            "the body does not go on: at least {least} bytes have to come in {} seconds",
            within.as_secs()
        );
        Self::new(StatusCode::REQUEST_TIMEOUT, codes::INVALID_PARAMETER, message)
    }

    /// Nobody reads what is answered.
    pub(crate) fn unread(within: std::time::Duration) -> Self {
        let message = format!("nothing was read for {} seconds", within.as_secs());
        Self::new(StatusCode::REQUEST_TIMEOUT, codes::INVALID_PARAMETER, message)
    }

    pub(crate) fn too_many_builds() -> Self {
        Self {
            retry_after_seconds: Some(10),
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                codes::TOO_BUSY,
                "too many builds are waiting already; try again later",
            )
        }
    }

    /// What went wrong here, or otherwise what whoever asked has to change.
    pub(crate) fn into_cause(self) -> Result<Box<dyn Error + Send + Sync>, String> {
        let is_ours = self.status == StatusCode::INTERNAL_SERVER_ERROR;
        match self.cause {
            Some(cause) if is_ours => Ok(cause),
            _ if is_ours => Ok(self.message.into()),
            _ => Err(self.message),
        }
    }

    /// A volume that cannot be had, or not be removed.
    fn volume(problem: VolumeProblem, message: String) -> Self {
        let code = match problem {
            VolumeProblem::HostPathNotAllowed => codes::VOLUME_HOST_PATH_NOT_ALLOWED,
            VolumeProblem::HostPathNotFound => codes::VOLUME_HOST_PATH_NOT_FOUND,
            VolumeProblem::NotFound => codes::VOLUME_PVC_NOT_FOUND,
            VolumeProblem::SubPath => codes::VOLUME_INVALID_SUB_PATH,
            VolumeProblem::MountPath => codes::VOLUME_INVALID_MOUNT_PATH,
            VolumeProblem::Unsupported => codes::VOLUME_UNSUPPORTED_BACKEND,
            VolumeProblem::HostPathNotMade => {
                return Self::failed(codes::VOLUME_HOST_PATH_CREATE_FAILED, message);
            }
            VolumeProblem::InUse => return Self::conflict(codes::VOLUME_IN_USE, message),
        };
        Self::invalid_as(code, message)
    }

    /// A sandbox that could not be made.
    fn start_failed(error: RuntimeError) -> Self {
        match error {
            RuntimeError::Invalid(_) => Self::invalid(error.to_string()),
            RuntimeError::UnknownImage(_) => {
                Self::invalid_as(codes::IMAGE_NOT_FOUND, error.to_string())
            }
            RuntimeError::UnknownSnapshot(id) => Self::no_snapshot(id),
            RuntimeError::Volume { problem, message } => Self::volume(problem, message),
            RuntimeError::Busy(_) => Self {
                retry_after_seconds: Some(1),
                ..Self::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    codes::TOO_BUSY,
                    format!("{error}; try again later"),
                )
            },
            RuntimeError::Conflict(_)
            | RuntimeError::NotFound(_)
            | RuntimeError::Refused { .. }
            | RuntimeError::Failed { .. } => Self::failed(
                codes::SANDBOX_START_FAILED,
                format!("the sandbox could not be started: {error}"),
            )
            .caused_by(error),
        }
    }

    /// Failures of our own with everything behind them; of the rest only the code, for a message
    /// may quote what the client sent.
    fn log(&self) {
        let (status, code) = (self.status.as_u16(), self.code);
        if self.status == StatusCode::INTERNAL_SERVER_ERROR {
            let chain = self.cause.as_deref().map(|cause| Chain(cause).to_string());
            tracing::error!(status, code, error = chain.as_deref(), "{}", self.message);
        } else {
            tracing::debug!(status, code, "refused");
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, retry_after_seconds) = (self.status, self.retry_after_seconds);
        let mut response = (status, Json(self.into_body())).into_response();
        if let Some(seconds) = retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<NotCreated> for ApiError {
    fn from(reason: NotCreated) -> Self {
        match reason {
            NotCreated::Image(error) => Self::remote(Errand::Pull, &error),
            NotCreated::Runtime(error) => Self::start_failed(error),
            NotCreated::Ended(how) => Self::failed(
                codes::SANDBOX_START_FAILED,
                format!("the sandbox ended as soon as it was started: {how}"),
            ),
            NotCreated::Store(error) => error.into(),
            NotCreated::Withdrawn => Self::failed(
                codes::SANDBOX_START_FAILED,
                "the sandbox was removed before it had started",
            ),
        }
    }
}

impl From<NotKept> for ApiError {
    fn from(reason: NotKept) -> Self {
        let error = match reason {
            NotKept::Store(error) => return error.into(),
            NotKept::Runtime(error) => error,
        };
        let message = format!("the snapshot could not be taken: {error}");
        match error {
            RuntimeError::Invalid(_) => Self::conflict(codes::SNAPSHOT_CONFLICT, message),
            RuntimeError::NotFound(_) => {
                Self::conflict(codes::SNAPSHOT_INVALID_SOURCE_STATE, "the sandbox ended meanwhile")
            }
            RuntimeError::UnknownImage(_)
            | RuntimeError::UnknownSnapshot(_)
            | RuntimeError::Volume { .. }
            | RuntimeError::Conflict(_)
            | RuntimeError::Refused { .. }
            | RuntimeError::Busy(_)
            | RuntimeError::Failed { .. } => {
                Self::failed(codes::SNAPSHOT_FAILED, message).caused_by(error)
            }
        }
    }
}

impl From<GatewayError> for ApiError {
    fn from(error: GatewayError) -> Self {
        let message = error.to_string();
        match error {
            GatewayError::NotFound(_) | GatewayError::Refused { .. } => {
                Self::new(StatusCode::BAD_GATEWAY, codes::BACKEND_CONNECTION_FAILED, message)
            }
            GatewayError::Broken { .. } => {
                Self::new(StatusCode::BAD_GATEWAY, codes::BACKEND_RESPONSE_FAILED, message)
            }
            GatewayError::Timeout { .. } => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, codes::BACKEND_TIMEOUT, message)
            }
            GatewayError::BadRequest(_) => Self::invalid(message),
            GatewayError::Busy => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, codes::TOO_BUSY, message)
            }
            GatewayError::Failed { .. } => {
                Self::failed(codes::INTERNAL_ERROR, message).caused_by(error)
            }
        }
    }
}

impl From<VaultError> for ApiError {
    fn from(error: VaultError) -> Self {
        let message = error.to_string();
        match error {
            VaultError::Missing | VaultError::Unknown(_) => {
                Self::new(StatusCode::NOT_FOUND, codes::VAULT_NOT_FOUND, message)
            }
            VaultError::Exists => Self::conflict(codes::VAULT_EXISTS, message),
            VaultError::Stale { .. } => Self::conflict(codes::VAULT_REVISION_MISMATCH, message),
            VaultError::Invalid(_) => Self::vault_invalid(message),
            VaultError::NotKept(_) => Self::failed(codes::INTERNAL_ERROR, message).caused_by(error),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::internal(error)
    }
}

impl From<InvalidLabel> for ApiError {
    fn from(error: InvalidLabel) -> Self {
        Self::invalid_as(codes::INVALID_METADATA_LABEL, error.to_string())
    }
}

impl From<PolicyError> for ApiError {
    fn from(error: PolicyError) -> Self {
        let message = error.to_string();
        match error {
            PolicyError::TooMany(_) => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, codes::TOO_MANY_RULES, message)
            }
            PolicyError::Rule { .. } => Self::invalid(message),
        }
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self::invalid_as(codes::BUILD_INVALID, problem.to_string())
    }
}

impl From<ContextError> for ApiError {
    fn from(error: ContextError) -> Self {
        match error {
            ContextError::Problem(problem) => problem.into(),
            ContextError::Missing(_) => Self::invalid_as(codes::BUILD_INVALID, error.to_string()),
            ContextError::Read { .. } => {
                Self::invalid_as(codes::BUILD_INVALID, Chain(&error).to_string())
            }
        }
    }
}

impl From<BuildError> for ApiError {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Problem(problem) => problem.into(),
            BuildError::Command(failed) => {
                Self::invalid_as(codes::BUILD_FAILED, failed.to_string())
            }
            BuildError::Work { .. } => {
                Self::failed(codes::INTERNAL_ERROR, error.to_string()).caused_by(error)
            }
        }
    }
}

impl From<getrandom::Error> for ApiError {
    fn from(error: getrandom::Error) -> Self {
        Self::internal(error)
    }
}

impl Unchanged<ApiError> {
    /// The answer to a change that was not made to sandbox `id`.
    pub(crate) fn answer(self, id: impl fmt::Display) -> ApiError {
        match self {
            Self::Missing => ApiError::no_sandbox(id),
            Self::Refused(error) => error,
            Self::Store(error) => error.into(),
        }
    }
}
