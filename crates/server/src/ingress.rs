//! Ways into a sandbox that are no paths of this server: a host of its own, and a header.

mod destination;
mod domain;
mod signature;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderValue, Uri, header};
use osb_api::headers;

pub(crate) use self::{
    destination::{Destination, port},
    domain::GatewayDomain,
    signature::{LAST_EXPIRY, Signer, Unsigned},
};
use crate::{app::App, auth, config, error::ApiError, routes};

/// Takes the requests that are for sandboxes by their host or header. All others go on to the
/// routes of the server, and none of these ever does, whatever its path.
pub(crate) async fn direct(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let host = asked(request.uri(), request.headers())?;
    let named = match &app.gateway_domain {
        Some(domain) => by_host(domain, host)?,
        None => None,
    };
    let told = by_header(request.headers())?;
    let to = match (named, told) {
        (Some(named), Some(told)) if named != told => {
            return Err(ApiError::invalid(
                "the host and the header OpenSandbox-Ingress-To name two destinations",
            ));
        }
        (Some(named), _) => named,
        (None, Some(told)) => {
            auth::check_local(&app, request.headers())?;
            told
        }
        (None, None) => return Ok(next.run(request).await),
    };
    routes::reach(&app, &to, 0, request).await
}

/// The host that the client asked for. Who names two could mean one to us and the other to whoever
/// passed the request on.
fn asked<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Option<&'a [u8]>, ApiError> {
    let mut hosts = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
    let first = hosts.next();
    if hosts.next().is_some() {
        return Err(ApiError::invalid("the request has more than one Host"));
    }
    // What the request line says wins (RFC 9112, 3.2.2).
    Ok(uri.authority().map(|authority| authority.as_str().as_bytes()).or(first))
}

fn by_host(domain: &GatewayDomain, host: Option<&[u8]>) -> Result<Option<Destination>, ApiError> {
    let Some(host) = host else { return Ok(None) };
    let host = std::str::from_utf8(host).ok().filter(|host| config::is_host(host));
    let host = host.ok_or_else(|| ApiError::invalid("the Host is no host[:port]"))?;
    let Some(label) = domain.below(host) else { return Ok(None) };
    let to = Destination::parse(&label.to_ascii_lowercase())?;
    to.map(Some).ok_or_else(ApiError::no_destination)
}

fn by_header(headers: &HeaderMap) -> Result<Option<Destination>, ApiError> {
    let mut values = headers.get_all(headers::INGRESS_TO).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let to = value.to_str().ok().filter(|_| values.next().is_none());
    let to = to.map(Destination::parse).transpose()?.flatten();
    to.map(Some).ok_or_else(|| {
        ApiError::invalid("OpenSandbox-Ingress-To must be <sandbox id>-<port>, and only once")
    })
}

#[cfg(test)]
mod tests {
    use osb_api::SandboxId;

    use super::*;

    #[test]
    fn a_host_below_the_domain_is_a_port_or_nothing() {
        let domain = GatewayDomain::parse("boxes.example.com").expect("a domain");
        let id = SandboxId::random();
        let found = |host: &str| by_host(&domain, Some(host.as_bytes()));
        let there = Destination { id, port: 8080, signature: None };
        let upper = id.to_string().to_uppercase();
        for host in [
            format!("8080-{id}.boxes.example.com"),
            format!("{id}-8080.boxes.example.com"),
            format!("8080-{id}.boxes.example.com:8443"),
            format!("8080-{id}.boxes.example.com."),
            format!("8080-{id}.boxes.example.com.:80"),
            format!("8080-{upper}.BOXES.Example.com"),
        ] {
            assert_eq!(found(&host).expect("a host"), Some(there), "{host}");
        }
        for host in ["boxes.example.com", "localhost:8080", "127.0.0.1", "[::1]:80", "example.com"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("8080-{id}.evilboxes.example.com"), format!("8080-{id}")])
        {
            assert_eq!(found(&host).expect("another host"), None, "{host}");
        }
        for host in [
            "x.boxes.example.com".to_owned(),
            ".boxes.example.com".to_owned(),
            format!("8080-{id}.a.boxes.example.com"),
            format!("0-{id}.boxes.example.com"),
            format!("65536-{id}.boxes.example.com"),
            format!("+80-{id}.boxes.example.com"),
            format!("{id}.boxes.example.com"),
            format!("user@8080-{id}.boxes.example.com"),
            format!("8080-{id}.boxes.example.com:80:90"),
            format!("8080-{id}.boxes.example.com/v1"),
            format!("8080-{id}.boxes.example.com@evil.example"),
            String::new(),
        ] {
            assert!(found(&host).is_err(), "{host} was accepted");
        }
    }
}
