//! Which headers pass.

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header, uri::Scheme};
use osb_api::{headers as ours, ports};

use crate::Caller;

/// Headers that concern one connection only (RFC 9110, 7.6.1), with their common kin.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What callers tell us and the service must not learn.
const CREDENTIALS: [&str; 4] =
    [ours::API_KEY, ours::SECURE_ACCESS, ours::INGRESS_TO, ours::ACCESS_RENEW];

/// Tokens that one port alone may see.
const TOKENS: [(&str, u16); 2] =
    [(ours::EXECD_TOKEN, ports::EXECD), (ours::EGRESS_TOKEN, ports::EGRESS)];

/// Makes the headers of an inbound request fit for the service on `port`.
pub(crate) fn inbound(headers: &mut HeaderMap, uri: &Uri, port: u16, caller: Option<&Caller>) {
    // A length beside a transfer coding is void, and would lie once the coding is gone.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    remove_hop_by_hop(headers);
    // We have answered it ourselves by reading the body.
    headers.remove(header::EXPECT);
    for name in CREDENTIALS {
        headers.remove(name);
    }
    for (name, allowed) in TOKENS {
        if port != allowed {
            headers.remove(name);
        }
    }
    set_host(headers, uri, port);
    set_forwarded(headers, caller);
}

/// Makes the headers of an answer fit for the client. `host` is what the service took for its own.
pub(crate) fn outbound(headers: &mut HeaderMap, prefix: &str, host: Option<&HeaderValue>) {
    remove_hop_by_hop(headers);
    headers.remove(header::SERVER);
    let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let moved = location.and_then(|location| relocated(location, prefix, host?.to_str().ok()?));
    if let Some(moved) = moved.and_then(|moved| HeaderValue::try_from(moved).ok()) {
        headers.insert(header::LOCATION, moved);
    }
}

/// Whether `Connection` names `token`.
pub(crate) fn lists(headers: &HeaderMap, token: &str) -> bool {
    connection_tokens(headers).any(|name| name.eq_ignore_ascii_case(token))
}

fn connection_tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        connection_tokens(headers).filter_map(|name| name.parse().ok()).collect();
    for name in named {
        // Naming a header that frames or routes the message must not take it away.
        if name != header::HOST && name != header::CONTENT_LENGTH {
            headers.remove(name);
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// The service sees the host that the client asked for; there is always one.
fn set_host(headers: &mut HeaderMap, uri: &Uri, port: u16) {
    let asked = match uri.authority() {
        Some(authority) => Some(authority.as_str().to_owned()),
        None if headers.contains_key(header::HOST) => None,
        None => Some(format!("localhost:{port}")),
    };
    if let Some(host) = asked.and_then(|host| HeaderValue::try_from(host).ok()) {
        headers.insert(header::HOST, host);
    }
}

/// Says where the request came from in our own words: what the client claimed proves nothing.
fn set_forwarded(headers: &mut HeaderMap, caller: Option<&Caller>) {
    let claimed: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            name.starts_with("x-forwarded-") || name == "forwarded" || name == "x-real-ip"
        })
        .cloned()
        .collect();
    for name in claimed {
        headers.remove(name);
    }
    if let Some(host) = headers.get(header::HOST).cloned() {
        headers.insert("x-forwarded-host", host);
    }
    let address = caller.and_then(|caller| caller.address.to_string().try_into().ok());
    if let Some(address) = address {
        headers.insert("x-forwarded-for", address);
    }
    let https = caller.is_some_and(|caller| caller.scheme == Scheme::HTTPS);
    let scheme = if https { "https" } else { "http" };
    headers.insert("x-forwarded-proto", HeaderValue::from_static(scheme));
}

/// Where a redirect to the service's own root leads from the client's point of view, if it has to
/// change: the service does not know that it lives under `prefix`.
fn relocated(location: &str, prefix: &str, host: &str) -> Option<String> {
    let own = ["http://", "https://"].iter().find_map(|scheme| {
        let rest = location.strip_prefix(scheme)?.strip_prefix(host)?;
        (rest.is_empty() || rest.starts_with(['/', '?'])).then_some(rest)
    });
    let path = own.unwrap_or(location);
    let rooted = own.is_some() || path.starts_with('/') && !path.starts_with("//");
    let inside = path
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
    if prefix.is_empty() || !rooted || inside {
        return None;
    }
    Some(if path.starts_with('/') { format!("{prefix}{path}") } else { format!("{prefix}/{path}") })
}
