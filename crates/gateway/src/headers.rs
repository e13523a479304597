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

/// The service sees the host that the client asked for; there is exactly one.
fn set_host(headers: &mut HeaderMap, uri: &Uri, port: u16) {
    let named = uri.authority().and_then(|authority| {
        let host = authority.as_str().rsplit('@').next()?;
        HeaderValue::try_from(host).ok()
    });
    let host = named
        .or_else(|| headers.get(header::HOST).cloned())
        .or_else(|| HeaderValue::try_from(format!("localhost:{port}")).ok());
    if let Some(host) = host {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(*name, HeaderValue::from_static(value));
            headers
        })
    }

    #[track_caller]
    fn check_inbound(port: u16, before: &[(&'static str, &'static str)], kept: &[&str]) {
        let mut headers = headers(before);
        inbound(&mut headers, &Uri::from_static("/"), port, None);
        let ours = ["host", "x-forwarded-host", "x-forwarded-proto"];
        let mut names: Vec<&str> =
            headers.keys().map(HeaderName::as_str).filter(|name| !ours.contains(name)).collect();
        names.sort_unstable();
        assert_eq!(names, kept);
    }

    #[test]
    fn what_concerns_one_connection_stays_on_it() {
        check_inbound(
            8080,
            &[
                ("connection", "close, X-Own, host"),
                ("connection", "x-other"),
                ("x-own", "1"),
                ("x-other", "1"),
                ("keep-alive", "timeout=5"),
                ("proxy-authorization", "Basic x"),
                ("te", "trailers"),
                ("upgrade", "h2c"),
                ("expect", "100-continue"),
                ("accept", "*/*"),
            ],
            &["accept"],
        );
    }

    #[test]
    fn a_length_beside_a_transfer_coding_is_dropped() {
        check_inbound(
            80,
            &[("content-length", "5"), ("connection", "content-length")],
            &["content-length"],
        );
        check_inbound(80, &[("content-length", "5"), ("transfer-encoding", "chunked")], &[]);
    }

    #[test]
    fn our_credentials_reach_only_whom_they_are_for() {
        let sent = [
            (ours::API_KEY, "k"),
            (ours::SECURE_ACCESS, "s"),
            (ours::ACCESS_RENEW, "skip"),
            (ours::INGRESS_TO, "x-1"),
            (ours::EXECD_TOKEN, "t"),
            (ours::EGRESS_TOKEN, "e"),
            ("authorization", "Bearer app"),
            ("cookie", "session=1"),
        ];
        check_inbound(8080, &sent, &["authorization", "cookie"]);
        check_inbound(ports::EXECD, &sent, &["authorization", "cookie", ours::EXECD_TOKEN]);
        check_inbound(ports::EGRESS, &sent, &["authorization", "cookie", ours::EGRESS_TOKEN]);
    }

    #[test]
    fn the_origin_is_told_in_our_own_words() {
        let mut headers = headers(&[
            ("host", "sandboxes.example:8080"),
            ("forwarded", "for=1.1.1.1"),
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-port", "1"),
            ("x-real-ip", "1.1.1.1"),
        ]);
        let caller = Caller { address: [192, 0, 2, 7].into(), scheme: Scheme::HTTPS };
        inbound(&mut headers, &Uri::from_static("/x"), 80, Some(&caller));
        for (name, value) in [
            ("host", Some("sandboxes.example:8080")),
            ("x-forwarded-host", Some("sandboxes.example:8080")),
            ("x-forwarded-for", Some("192.0.2.7")),
            ("x-forwarded-proto", Some("https")),
            ("x-forwarded-port", None),
            ("forwarded", None),
            ("x-real-ip", None),
        ] {
            assert_eq!(headers.get(name).map(|value| value.to_str().unwrap()), value, "{name}");
        }
    }

    #[test]
    fn there_is_always_one_host() {
        let mut none = HeaderMap::new();
        inbound(&mut none, &Uri::from_static("/"), 81, None);
        assert_eq!(none["host"], "localhost:81");
        let mut absolute = headers(&[("host", "lie.example")]);
        inbound(&mut absolute, &Uri::from_static("http://user@true.example/x"), 81, None);
        assert_eq!(absolute["host"], "true.example");
        let mut twice = headers(&[("host", "one.example"), ("host", "two.example")]);
        inbound(&mut twice, &Uri::from_static("/"), 81, None);
        assert_eq!(twice.get_all("host").iter().collect::<Vec<_>>(), ["one.example"]);
    }

    #[test]
    fn redirects_to_the_root_stay_below_the_prefix() {
        for (location, moved) in [
            ("/login?next=%2F", Some("/p/80/login?next=%2F")),
            ("/", Some("/p/80/")),
            ("/p/800/x", Some("/p/80/p/800/x")),
            ("http://gw.example/login", Some("/p/80/login")),
            ("https://gw.example", Some("/p/80/")),
            ("http://gw.example?x", Some("/p/80/?x")),
            ("/p/80/x", None),
            ("/p/80", None),
            ("http://gw.example.org/x", None),
            ("//other.example/x", None),
            ("https://other.example/x", None),
            ("relative/x", None),
            ("?page=2", None),
            ("", None),
        ] {
            assert_eq!(relocated(location, "/p/80", "gw.example").as_deref(), moved, "{location}");
        }
        assert_eq!(relocated("/login", "", "gw.example"), None);
    }

    #[test]
    fn answers_keep_what_is_theirs() {
        let mut answer = headers(&[
            ("connection", "keep-alive, x-own"),
            ("x-own", "1"),
            ("transfer-encoding", "chunked"),
            ("server", "upstream/1"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ]);
        outbound(&mut answer, "/p", None);
        assert_eq!(answer, headers(&[("set-cookie", "a=1"), ("set-cookie", "b=2")]));
    }
}
