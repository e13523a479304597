use std::sync::Arc;

use osb_api::SandboxId;
use osb_core::RuntimeError;

/// Why a request did not get its answer, one variant per answer to the client.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// There is no such sandbox.
    #[error("sandbox {0} does not exist")]
    NotFound(SandboxId),
    /// Nothing listens on that port.
    #[error("nothing listens on port {port} of sandbox {sandbox}")]
    Refused { sandbox: SandboxId, port: u16 },
    /// The service broke off or answered something that is not HTTP.
    #[error("the service on port {port} of sandbox {sandbox} broke off")]
    Broken {
        sandbox: SandboxId,
        port: u16,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The service took too long.
    #[error("the service on port {port} of sandbox {sandbox} did not {stage} in time")]
    Timeout { sandbox: SandboxId, port: u16, stage: Stage },
    /// The request cannot be forwarded, or its body broke off.
    #[error("{0}")]
    BadRequest(String),
    /// As many requests as may be are in progress.
    #[error("too many requests are in progress")]
    Busy,
    /// We could not open a stream into the sandbox.
    #[error("cannot open a stream to port {port} of sandbox {sandbox}")]
    Failed {
        sandbox: SandboxId,
        port: u16,
        #[source]
        source: Arc<RuntimeError>,
    },
}

/// What a service was to do in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Take the connection.
    Accept,
    /// Begin its answer.
    Answer,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept the connection",
            Self::Answer => "answer",
        })
    }
}

/// Whose doing an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The client's: the request must change.
    Client,
    /// The service's inside the sandbox.
    Upstream,
    /// Ours: an operator should look.
    Us,
}

impl GatewayError {
    pub fn fault(&self) -> Fault {
        match self {
            Self::NotFound(_) | Self::BadRequest(_) => Fault::Client,
            Self::Refused { .. } | Self::Broken { .. } | Self::Timeout { .. } => Fault::Upstream,
            Self::Busy | Self::Failed { .. } => Fault::Us,
        }
    }

    /// Whether the service cannot have seen the request, so that sending it again, whatever it
    /// asks for, does nothing twice.
    pub fn is_retry_safe(&self) -> bool {
        match self {
            Self::Refused { .. }
            | Self::Busy
            | Self::Failed { .. }
            | Self::Timeout { stage: Stage::Accept, .. } => true,
            Self::NotFound(_)
            | Self::BadRequest(_)
            | Self::Broken { .. }
            | Self::Timeout { stage: Stage::Answer, .. } => false,
        }
    }
}
