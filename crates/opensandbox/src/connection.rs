use std::{fmt, net::IpAddr, time::Duration};

use http::{HeaderValue, Uri};

/// Where the server is and how to speak to it.
///
/// Reads nothing from the environment: programs hand in what `OPEN_SANDBOX_DOMAIN` and
/// `OPEN_SANDBOX_API_KEY` hold.
#[derive(Clone)]
pub struct Connection {
    /// `host[:port]`, as in a URL.
    authority: String,
    /// What stands before `/v1`, with a slash in front; empty in most installations.
    prefix: String,
    api_key: Option<HeaderValue>,
    pub(crate) route: Route,
    pub(crate) answer_within: Duration,
    pub(crate) ready_within: Duration,
    pub(crate) dead_after: Duration,
}

/// How calls into a sandbox travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Route {
    /// To the address that the server thinks best.
    #[default]
    Best,
    /// Through the server, for clients that reach nothing else.
    Server,
}

/// A domain that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDomain {
    #[error(
        "{0} asks for https, which this client does not speak yet: name a plain http address, \
         for instance that of a proxy which adds TLS"
    )]
    Https(String),
    #[error("{0:?} is not a domain: it should look like host, host:port or http://host:port/path")]
    Malformed(String),
}

/// An API key with characters that no header can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the API key holds characters that cannot be sent in a header")]
pub struct InvalidApiKey;

impl Connection {
    /// The domain of clients that were told none.
    pub const DEFAULT_DOMAIN: &str = "127.0.0.1:8080";

    /// A connection to `domain`: `host[:port]`, optionally with `http://` in front and a path
    /// behind it. A trailing `/v1` is tolerated.
    pub fn new(domain: &str) -> Result<Self, InvalidDomain> {
        let malformed = || InvalidDomain::Malformed(domain.to_owned());
        let text = domain.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        match scheme.to_ascii_lowercase().as_str() {
            "http" => {}
            "https" => return Err(InvalidDomain::Https(domain.to_owned())),
            _ => return Err(malformed()),
        }
        let uri: Uri = format!("http://{rest}").parse().map_err(|_| malformed())?;
        let authority = uri.authority().ok_or_else(malformed)?;
        if authority.host().is_empty() || authority.as_str().contains('@') || uri.query().is_some()
        {
            return Err(malformed());
        }
        let path = uri.path().trim_end_matches('/');
        let prefix = path.strip_suffix("/v1").unwrap_or(path).trim_end_matches('/');
        Ok(Self {
            authority: authority.to_string(),
            prefix: prefix.to_owned(),
            api_key: None,
            route: Route::default(),
            answer_within: Duration::from_secs(30),
            ready_within: Duration::from_mins(2),
            dead_after: Duration::from_mins(1),
        })
    }

    /// Sends `key` with every lifecycle call. It is never sent into a sandbox.
    pub fn api_key(mut self, key: &str) -> Result<Self, InvalidApiKey> {
        let mut value = HeaderValue::from_str(key.trim()).map_err(|_| InvalidApiKey)?;
        value.set_sensitive(true);
        self.api_key = (!value.is_empty()).then_some(value);
        Ok(self)
    }

    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.route = route;
        self
    }

    /// How long an answer may take to begin. Default: 30 seconds.
    #[must_use]
    pub fn answer_within(mut self, limit: Duration) -> Self {
        self.answer_within = limit;
        self
    }

    /// How long a new sandbox may take to become usable, image and all. Default: 2 minutes.
    #[must_use]
    pub fn ready_within(mut self, limit: Duration) -> Self {
        self.ready_within = limit;
        self
    }

    /// After how much silence the peer of an open stream counts as dead. execd sends a sign of
    /// life every 3 seconds. Default: 1 minute.
    #[must_use]
    pub fn dead_after(mut self, limit: Duration) -> Self {
        self.dead_after = limit;
        self
    }

    /// `host[:port]` of the server.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether the server is on this machine.
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.authority)
    }

    pub(crate) fn key_header(&self) -> Option<&HeaderValue> {
        self.api_key.as_ref()
    }

    /// Where the lifecycle API is.
    pub(crate) fn base(&self) -> String {
        format!("http://{}{}/v1", self.authority, self.prefix)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("base", &self.base())
            .field("api_key", &self.api_key)
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}

pub(crate) fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority.split(':').next().unwrap_or(authority),
    };
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(domain: &str) -> String {
        Connection::new(domain).unwrap().base()
    }

    #[test]
    fn domains_come_in_many_spellings() {
        for (domain, expected) in [
            ("localhost:8080", "http://localhost:8080/v1"),
            ("http://localhost:8080", "http://localhost:8080/v1"),
            ("HTTP://localhost:8080/", "http://localhost:8080/v1"),
            (" 127.0.0.1:1 ", "http://127.0.0.1:1/v1"),
            ("example.com/boxes", "http://example.com/boxes/v1"),
            ("http://example.com/boxes/v1/", "http://example.com/boxes/v1"),
            ("[::1]:8080/v1", "http://[::1]:8080/v1"),
        ] {
            assert_eq!(base(domain), expected, "{domain}");
        }
    }

    #[test]
    fn https_is_refused_with_a_reason() {
        let error = Connection::new("https://example.com").unwrap_err();
        assert!(error.to_string().contains("does not speak yet"), "{error}");
    }

    #[test]
    fn nonsense_is_no_domain() {
        for domain in ["", "http://", "ftp://example.com", "a b", "user:pw@host", "host?x=1"] {
            assert!(
                matches!(Connection::new(domain), Err(InvalidDomain::Malformed(_))),
                "{domain:?} was accepted"
            );
        }
    }

    #[test]
    fn the_key_is_not_printed() {
        let connection = Connection::new("localhost").unwrap().api_key("s3cret").unwrap();
        assert!(!format!("{connection:?}").contains("s3cret"));
        assert!(Connection::new("localhost").unwrap().api_key("a\nb").is_err());
    }

    #[test]
    fn loopback_is_recognised_by_name_and_number() {
        for (domain, expected) in [
            ("localhost:1", true),
            ("127.0.0.1", true),
            ("127.9.9.9:80", true),
            ("[::1]:8080", true),
            ("example.com", false),
            ("10.0.0.1:8080", false),
            ("localhost.example.com", false),
        ] {
            assert_eq!(Connection::new(domain).unwrap().is_loopback(), expected, "{domain}");
        }
    }
}
