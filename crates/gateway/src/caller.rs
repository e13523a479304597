use std::net::IpAddr;

use http::uri::Scheme;

/// Who sent the request to us, as the service behind is told in `X-Forwarded-For` and
/// `X-Forwarded-Proto`. Callers of [`crate::Gateway::forward`] put it into the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub address: IpAddr,
    pub scheme: Scheme,
}
