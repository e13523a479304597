use std::{
    error::Error,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{Uri, uri::PathAndQuery};
use hyper_util::{client::legacy, rt::TokioIo};
use osb_api::SandboxId;
use osb_core::RuntimeError;
use tower::Service;

use crate::{Dial, Fair, GatewayError, Stage, body::ClientBroke, wire::Wire};

/// A sandbox that takes no connection within this time takes none.
const ACCEPT_WITHIN: Duration = Duration::from_secs(5);

/// One port of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) sandbox: SandboxId,
    pub(crate) port: u16,
}

impl Target {
    /// The address under which the connection pool knows this target; `rest` stays as it is.
    pub(crate) fn uri(self, rest: &str) -> Result<Uri, GatewayError> {
        let unfit = |_| GatewayError::BadRequest("the path cannot be forwarded".to_owned());
        if !rest.starts_with('/') {
            return Err(GatewayError::BadRequest("the path must begin with '/'".to_owned()));
        }
        Uri::builder()
            .scheme("http")
            .authority(format!("{}:{}", self.sandbox, self.port))
            .path_and_query(PathAndQuery::try_from(rest).map_err(|error| unfit(error.into()))?)
            .build()
            .map_err(unfit)
    }

    fn from_uri(uri: &Uri) -> Option<Self> {
        Some(Self { sandbox: uri.host()?.parse().ok()?, port: uri.port_u16()? })
    }

    pub(crate) fn broken(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> GatewayError {
        GatewayError::Broken { sandbox: self.sandbox, port: self.port, source: source.into() }
    }

    pub(crate) fn late(self, stage: Stage) -> GatewayError {
        GatewayError::Timeout { sandbox: self.sandbox, port: self.port, stage }
    }

    /// What went wrong according to a chain of errors that ends in our own or in hyper's.
    pub(crate) fn explain(self, error: legacy::Error) -> GatewayError {
        let mut cause: Option<&(dyn Error + 'static)> = error.source();
        while let Some(current) = cause {
            if let Some(broke) = current.downcast_ref::<ClientBroke>() {
                return GatewayError::BadRequest(broke.to_string());
            }
            if let Some(error) = current.downcast_ref::<Undialled>() {
                return error.to_gateway(self);
            }
            cause = current.source();
        }
        self.broken(error)
    }
}

/// Why there is no connection. The pool hands errors back by reference only, hence the `Arc`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Undialled {
    #[error("the sandbox did not accept in time")]
    Late,
    #[error("the runtime could not dial")]
    Runtime(#[source] Arc<RuntimeError>),
}

impl Undialled {
    fn to_gateway(&self, target: Target) -> GatewayError {
        let Target { sandbox, port } = target;
        match self {
            Self::Late => target.late(Stage::Accept),
            Self::Runtime(error) => match &**error {
                RuntimeError::NotFound(_) => GatewayError::NotFound(sandbox),
                RuntimeError::Refused { .. } => GatewayError::Refused { sandbox, port },
                RuntimeError::Invalid(_)
                | RuntimeError::UnknownImage(_)
                | RuntimeError::UnknownSnapshot(_)
                | RuntimeError::Volume { .. }
                | RuntimeError::Conflict(_)
                | RuntimeError::Busy(_)
                | RuntimeError::Failed { .. } => {
                    GatewayError::Failed { sandbox, port, source: Arc::clone(error) }
                }
            },
        }
    }
}

impl From<RuntimeError> for Undialled {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(Arc::new(error))
    }
}

/// Opens the connections of the pool.
#[derive(Clone)]
pub(crate) struct Dialler(pub(crate) Arc<dyn Dial>);

impl Service<Uri> for Dialler {
    type Response = TokioIo<Fair<Wire>>;
    type Error = Undialled;
    type Future = BoxFuture<'static, Result<Self::Response, Undialled>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Undialled>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dial = Arc::clone(&self.0);
        Box::pin(async move {
            let Target { sandbox, port } = Target::from_uri(&uri)
                .ok_or_else(|| RuntimeError::Invalid(format!("{uri} names no sandbox")))?;
            let dialled = tokio::time::timeout(ACCEPT_WITHIN, dial.dial(sandbox, port))
                .await
                .map_err(|_| Undialled::Late)??;
            let wire = Wire::new(dialled)
                .map_err(|error| RuntimeError::failed("take over the dialled stream", error))?;
            Ok(TokioIo::new(Fair::new(wire)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_survives_its_address_and_the_path_stays_raw() {
        let target = Target { sandbox: SandboxId::random(), port: 80 };
        for rest in ["/", "/a%2Fb%3Fc?x=%20&y", "//double", "/a/../b", "/?", "/ü"] {
            let uri = target.uri(rest).unwrap();
            assert_eq!(Target::from_uri(&uri), Some(target));
            assert_eq!(uri.path_and_query().unwrap().as_str(), rest);
        }
        for rest in ["", "x", "*", "/a b", "/a\r\nb"] {
            assert!(target.uri(rest).is_err(), "{rest:?} was accepted");
        }
    }
}
