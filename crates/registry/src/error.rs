use std::{io, time::Duration};

use http::StatusCode;

use crate::{InvalidManifest, said::Said};

/// Why a registry did not give, or take, what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The caller must prove who they are, or ask for something else.
    #[error("{host} does not let us {doing}{said}: {}", advice(*.login))]
    Denied { host: String, doing: String, login: HadLogin, said: Said },
    /// The caller must ask for another name.
    #[error("{host} does not have {what}{said}")]
    Unknown { host: String, what: String, said: Said },
    /// The caller must ask for another platform, or another image.
    #[error("{image} is not there for {wanted}; it is for: {available}")]
    Platform { image: String, wanted: String, available: String },
    /// The operator must name the host, if that is meant.
    #[error(
        "{host} is at an address that is not public: only registries that the operator names in \
         [images] may be there"
    )]
    Guarded { host: String },
    /// Somebody must look at the network, or wait.
    #[error("cannot reach {host}")]
    Unreachable {
        host: String,
        #[source]
        cause: io::Error,
    },
    /// The other side must be waited for.
    #[error("{host} cannot {doing} now: it answers {status}{said}")]
    Unavailable {
        host: String,
        doing: String,
        status: StatusCode,
        said: Said,
        retry_after: Option<Duration>,
    },
    /// It will not help to ask again.
    #[error("{host} refuses to {doing}: it answers {status}{said}")]
    Refused { host: String, doing: String, status: StatusCode, said: Said },
    /// The other side is broken, or lies.
    #[error("{host} cannot be believed: {problem}")]
    Corrupt { host: String, problem: String },
    #[error("{host} has something that cannot be used as {image}")]
    Manifest {
        host: String,
        image: String,
        #[source]
        cause: InvalidManifest,
    },
    /// The operator must mend the settings.
    #[error("{0}")]
    Settings(String),
    /// What is to be sent cannot be read.
    #[error("cannot read what is to be pushed")]
    Source(#[source] io::Error),
}

/// Whether the other side was told who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HadLogin {
    Yes,
    No,
}

const fn advice(login: HadLogin) -> &'static str {
    match login {
        HadLogin::Yes => "the login that was used is not enough for it",
        HadLogin::No => {
            "give a login with the request, or let the operator log in with docker login; it also \
             answers so if there is no such image"
        }
    }
}

/// Who can mend what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Whoever asked.
    Caller,
    /// Whoever runs the registry, or the network in between.
    Registry,
    /// Whoever runs this server.
    Operator,
}

impl RegistryError {
    pub fn fault(&self) -> Fault {
        match self {
            Self::Denied { .. }
            | Self::Unknown { .. }
            | Self::Platform { .. }
            | Self::Guarded { .. } => Fault::Caller,
            Self::Unreachable { .. }
            | Self::Unavailable { .. }
            | Self::Refused { .. }
            | Self::Corrupt { .. }
            | Self::Manifest { .. } => Fault::Registry,
            Self::Settings(_) | Self::Source(_) => Fault::Operator,
        }
    }

    /// Whether the same may work in a while.
    pub fn is_transient(&self) -> bool {
        match self {
            // Whoever is not believed to be who they say will not be in a while.
            Self::Unreachable { cause, .. } => {
                ![io::ErrorKind::InvalidData, io::ErrorKind::InvalidInput].contains(&cause.kind())
            }
            Self::Unavailable { .. } => true,
            Self::Denied { .. }
            | Self::Unknown { .. }
            | Self::Platform { .. }
            | Self::Guarded { .. }
            | Self::Refused { .. }
            | Self::Corrupt { .. }
            | Self::Manifest { .. }
            | Self::Settings(_)
            | Self::Source(_) => false,
        }
    }

    pub(crate) fn corrupt(host: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Corrupt { host: host.into(), problem: problem.into() }
    }

    pub(crate) fn unreachable(host: impl Into<String>, cause: io::Error) -> Self {
        Self::Unreachable { host: host.into(), cause }
    }
}
