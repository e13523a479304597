//! The way to services in the sandbox that listen on a port.

mod inside;
mod own;

use std::{net::IpAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
    routing::any,
};
use http::{HeaderMap, Uri, uri::Scheme};
use osb_api::SandboxId;
use osb_gateway::{Caller, Gateway, Route};

use crate::{daemon::Daemon, error::ApiError};
use inside::Inside;
pub(crate) use own::enter_own_proxy;

/// How many requests are forwarded at once. Each may have a connection and what is buffered on it.
const MOST: usize = 256;

/// Forwards requests to services in the sandbox.
#[derive(Debug)]
pub(crate) struct Proxy {
    gateway: Gateway,
    /// What stands for the one sandbox that there is here; nobody else gets to see it.
    here: SandboxId,
}

/// Who is at the other end of the connection that a request came on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Proxy {
    pub(crate) fn new() -> Self {
        Self { gateway: Gateway::new(Inside).at_most(MOST), here: SandboxId::random() }
    }
}

pub(crate) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route("/proxy", any(forward))
        .route("/proxy/", any(forward))
        .route("/proxy/{port}", any(forward))
        .route("/proxy/{port}/", any(forward))
        .route("/proxy/{port}/{*path}", any(forward))
}

/// Any method of `/proxy/{port}` and all below it.
async fn forward(
    State(daemon): State<Arc<Daemon>>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let Place { port, prefix, rest } = Place::parse(request.uri())?;
    if let Some(caller) = caller(request.headers(), request.extensions().get()) {
        request.extensions_mut().insert(caller);
    }
    let Proxy { gateway, here } = &daemon.proxy;
    let route = Route { sandbox: *here, port, rest: &rest, prefix: &prefix };
    let response = gateway.forward(&route, request).await?;
    Ok(response.map(Body::new))
}

/// What a path below `/proxy` means.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    port: u16,
    /// What the service does not know of its own path.
    prefix: String,
    /// Path and query for the service, byte for byte.
    rest: String,
}

impl Place {
    fn parse(uri: &Uri) -> Result<Self, ApiError> {
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        let below = path.strip_prefix("/proxy").unwrap_or_default();
        let below = below.strip_prefix('/').unwrap_or_default();
        let (text, rest) = below.split_at(below.find(['/', '?']).unwrap_or(below.len()));
        // One port has one spelling: what is meant for our own must not look like another's.
        let port = text.parse().ok().filter(|port: &u16| *port > 0 && port.to_string() == text);
        let port =
            port.ok_or_else(|| ApiError::invalid("the port must be a number from 1 to 65535"))?;
        let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        Ok(Self { port, prefix: format!("/proxy/{text}"), rest })
    }
}

/// Who asks. Whoever may call us is believed when it says on whose behalf.
fn caller(headers: &HeaderMap, peer: Option<&Peer>) -> Option<Caller> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let claimed =
        text("x-forwarded-for").split(',').next().and_then(|first| first.trim().parse().ok());
    let address = claimed.or_else(|| peer.map(|peer| peer.0))?;
    let https = text("x-forwarded-proto").eq_ignore_ascii_case("https");
    Some(Caller { address, scheme: if https { Scheme::HTTPS } else { Scheme::HTTP } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_byte_for_byte() {
        for (path, port, rest) in [
            ("/proxy/8000", 8000, "/"),
            ("/proxy/8000/", 8000, "/"),
            ("/proxy/8000?a=b", 8000, "/?a=b"),
            ("/proxy/1/a%2Fb//c?x=%20&y=/z", 1, "/a%2Fb//c?x=%20&y=/z"),
            ("/proxy/65535/proxy/1", 65535, "/proxy/1"),
        ] {
            let place = Place::parse(&Uri::from_static(path)).unwrap();
            let expected = Place { port, prefix: format!("/proxy/{port}"), rest: rest.to_owned() };
            assert_eq!(place, expected, "{path}");
        }
    }

    #[test]
    fn a_port_has_one_spelling() {
        for path in [
            "/proxy",
            "/proxy/",
            "/proxy//x",
            "/proxy/0/",
            "/proxy/65536",
            "/proxy/08000/",
            "/proxy/+8000/",
            "/proxy/-1",
            "/proxy/http/",
            "/proxy/%38000/",
            "/proxy/8000x/",
        ] {
            Place::parse(&Uri::from_static(path)).unwrap_err();
        }
    }

    #[test]
    fn the_first_in_the_line_is_the_caller() {
        let peer = Peer([192, 0, 2, 1].into());
        let with = |name: &'static str, value| {
            HeaderMap::from_iter([(
                http::HeaderName::from_static(name),
                http::HeaderValue::from_static(value),
            )])
        };
        let address =
            |headers: HeaderMap, peer| caller(&headers, peer).map(|caller| caller.address);
        assert_eq!(address(HeaderMap::new(), Some(&peer)), Some(peer.0));
        assert_eq!(address(HeaderMap::new(), None), None);
        let claimed = with("x-forwarded-for", "198.51.100.7, 10.0.0.1");
        assert_eq!(address(claimed, Some(&peer)), Some([198, 51, 100, 7].into()));
        assert_eq!(address(with("x-forwarded-for", "nonsense"), Some(&peer)), Some(peer.0));
        let caller = caller(&with("x-forwarded-proto", "https"), Some(&peer)).unwrap();
        assert_eq!(caller.scheme, Scheme::HTTPS);
    }
}
