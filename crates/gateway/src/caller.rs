use std::{any::Any, net::IpAddr, sync::Arc};

use http::uri::Scheme;

/// Who sent the request to us, as the service behind is told in `X-Forwarded-For` and
/// `X-Forwarded-Proto`. Callers of [`crate::Gateway::forward`] put it into the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub address: IpAddr,
    pub scheme: Scheme,
}

/// Whatever is to be kept until a request is over: the body of its answer, or the stream that it was
/// upgraded to. Callers of [`crate::Gateway::forward`] put it into the request's extensions.
#[derive(Debug, Clone)]
pub struct Held(#[expect(dead_code, reason = "it is only dropped")] Arc<dyn Any + Send + Sync>);

impl Held {
    pub fn new(what: impl Any + Send + Sync) -> Self {
        Self(Arc::new(what))
    }
}
