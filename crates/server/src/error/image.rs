//! Images that cannot be had, kept or given away.

use std::sync::Arc;

use http::StatusCode;
use osb_api::{ErrorBody, codes};
use osb_core::Chain;
use osb_image::{ImageError, RemoteError, UnpackError};
use osb_registry::RegistryError;

use super::ApiError;

/// When a registry may be asked again that cannot be reached, in seconds.
const ASK_AGAIN: u32 = 30;

/// What was to be done with a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errand {
    Pull,
    Push,
}

impl Errand {
    fn failed(self) -> &'static str {
        match self {
            Self::Pull => codes::IMAGE_PULL_FAILED,
            Self::Push => codes::IMAGE_PUSH_FAILED,
        }
    }
}

impl ApiError {
    /// An image of that name is not here.
    pub(crate) fn no_image(name: &str) -> Self {
        let name: String = name.chars().take(512).collect();
        let message = format!("no image here has the name {name:?}: `osb image ls` shows them");
        Self::new(StatusCode::NOT_FOUND, codes::IMAGE_NOT_FOUND, message)
    }

    /// The server has no images of its own.
    pub(crate) fn no_images() -> Self {
        Self::not_implemented(
            codes::NOT_SUPPORTED,
            "the runtime of this server does not leave images to it",
        )
    }

    /// The server does as many of these at a time as it can.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self {
            retry_after_seconds: Some(1),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, codes::TOO_BUSY, message)
        }
    }

    /// An image could not be got from a registry, or given to one.
    pub(crate) fn remote(errand: Errand, error: &Arc<RemoteError>) -> Self {
        let message = error.to_string();
        let registry = match &**error {
            RemoteError::Registry(error) => error,
            RemoteError::Image(error) => return Self::image(error).caused_by(chain(error)),
            RemoteError::Ended => {
                return Self::unavailable(errand.failed(), "the server broke the work off");
            }
        };
        match registry {
            RegistryError::Denied { .. } => {
                Self::new(StatusCode::FORBIDDEN, codes::IMAGE_ACCESS_DENIED, message)
            }
            // Not 404, of which published clients cannot read the code when they make a sandbox.
            RegistryError::Unknown { .. } | RegistryError::Platform { .. } => {
                Self::invalid_as(codes::IMAGE_NOT_FOUND, message)
            }
            RegistryError::Guarded { .. } => {
                Self::new(StatusCode::FORBIDDEN, codes::REGISTRY_NOT_ALLOWED, message)
            }
            RegistryError::Unreachable { .. } | RegistryError::Unavailable { .. } => {
                Self::unavailable(errand.failed(), format!("{message}; try again later"))
            }
            RegistryError::Refused { .. } | RegistryError::Corrupt { .. } => {
                Self::new(StatusCode::BAD_GATEWAY, errand.failed(), message)
            }
            RegistryError::Manifest { .. } => {
                Self::invalid_as(codes::IMAGE_REFUSED, Chain(registry).to_string())
            }
            RegistryError::Settings(_) | RegistryError::Source(_) => {
                Self::failed(errand.failed(), message)
            }
        }
        .caused_by(Arc::clone(error))
    }

    /// An image that cannot be used.
    fn image(error: &ImageError) -> Self {
        let refused =
            |error: &ImageError| Self::invalid_as(codes::IMAGE_REFUSED, Chain(error).to_string());
        match error {
            ImageError::Unknown(_) | ImageError::Missing { .. } => {
                Self::invalid_as(codes::IMAGE_NOT_FOUND, error.to_string())
            }
            ImageError::Layer {
                source: UnpackError::Disk { .. } | UnpackError::Prepare(_),
                ..
            }
            | ImageError::Store(_) => Self::failed(
                codes::INTERNAL_ERROR,
                "the server could not write its images; its log says why",
            ),
            ImageError::Layer { .. }
            | ImageError::Refused(_)
            | ImageError::Manifest(_)
            | ImageError::Mismatch { .. } => refused(error),
            ImageError::Read(_) | ImageError::Write(_) => Self::invalid(Chain(error).to_string()),
        }
    }

    fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        let retry_after_seconds = Some(ASK_AGAIN);
        Self { retry_after_seconds, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message) }
    }

    /// The same at the end of an answer that has begun.
    pub(crate) fn into_body(self) -> ErrorBody {
        self.log();
        ErrorBody { code: self.code.to_owned(), message: self.message }
    }
}

impl From<ImageError> for ApiError {
    fn from(error: ImageError) -> Self {
        Self::image(&error).caused_by(error)
    }
}

/// What went wrong as one text, where the error itself is somebody else's.
fn chain(error: &ImageError) -> String {
    Chain(error).to_string()
}
