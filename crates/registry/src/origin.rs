use std::{fmt, net::IpAddr, str::FromStr};

use http::{Uri, uri};

/// The longest address that a registry may send us to. Those of storage are signed, and long.
const LONGEST: usize = 16 << 10;

/// Whom a request goes to: a host and a port, with TLS or without.
///
/// What is secret goes to the one that it is for, and to no other.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    scheme: Scheme,
    /// Without brackets, in lower case.
    host: String,
    port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    Https,
    Http,
}

impl Scheme {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    const fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the address of a registry: write host, host:port or http://host:port")]
pub struct InvalidOrigin(String);

impl Origin {
    /// `host`, `host:port`, or one of them after `https://` or `http://`.
    pub fn parse(text: &str) -> Result<Self, InvalidOrigin> {
        let wrong = || InvalidOrigin(text.chars().take(300).collect());
        let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let uri: Uri = whole.parse().map_err(|_| wrong())?;
        let path = uri.path_and_query().map_or("", uri::PathAndQuery::as_str);
        let origin = Self::of(&uri).filter(|_| ["", "/"].contains(&path));
        origin.ok_or_else(wrong)
    }

    /// Where the registry of that name listens.
    pub(crate) fn of_registry(registry: &str, scheme: Scheme) -> Option<Self> {
        // The name is that of a website.
        let host = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
        Self::parse(&format!("{}://{host}", scheme.as_str())).ok()
    }

    /// That of an absolute address which holds no login.
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let scheme = match uri.scheme_str()? {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            _ => return None,
        };
        let authority = uri.authority()?;
        let rest = authority.as_str().strip_prefix(authority.host())?;
        let port = match rest.strip_prefix(':') {
            Some(port) if port.bytes().all(|it| it.is_ascii_digit()) => port.parse().ok()?,
            None if rest.is_empty() => scheme.port(),
            _ => return None,
        };
        let host = authority.host();
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|it| it.parse::<IpAddr>().is_ok())?,
            None => host,
        };
        let is_fine = !host.is_empty() && host.len() <= 253 && port != 0;
        is_fine.then(|| Self { scheme, host: host.to_ascii_lowercase(), port })
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host, and the port unless everybody knows it.
    pub(crate) fn authority(&self) -> String {
        let host = &self.host;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if self.port == self.scheme.port() { host } else { format!("{host}:{}", self.port) }
    }

    /// An address here. `None` if that is no path.
    pub(crate) fn at(&self, path: &str) -> Option<Uri> {
        format!("{}://{}{path}", self.scheme.as_str(), self.authority()).parse().ok()
    }
}

/// Where a registry sends us that was asked at `base`; `None` if that is nowhere.
///
/// Whoever was asked with TLS cannot send us on to somebody who speaks without.
pub(crate) fn follow(base: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    if location.is_empty() || location.len() > LONGEST {
        return None;
    }
    let origin = Origin::of(base)?;
    let next: Uri = if location.contains("://") && !location.starts_with('/') {
        location.parse().ok()?
    } else if location.starts_with("//") {
        format!("{}:{location}", origin.scheme.as_str()).parse().ok()?
    } else if location.starts_with('/') {
        origin.at(location)?
    } else {
        let (directory, _) = base.path().rsplit_once('/')?;
        origin.at(&format!("{directory}/{location}"))?
    };
    let to = Origin::of(&next)?;
    if origin.scheme == Scheme::Http || to.scheme == Scheme::Https {
        return Some(next);
    }
    // A registry that does not know of the TLS in front of it speaks of itself.
    let path = next.path_and_query().map_or("/", uri::PathAndQuery::as_str);
    (to.host == origin.host).then(|| origin.at(path))?
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority())
    }
}

impl From<&Origin> for String {
    fn from(origin: &Origin) -> Self {
        origin.to_string()
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn origins_have_one_spelling() {
        for (text, origin) in [
            ("R.test", "https://r.test"),
            ("r.test:443", "https://r.test"),
            ("http://r.test:80/", "http://r.test"),
            ("http://r.test:443", "http://r.test:443"),
            ("https://[::1]:5000", "https://[::1]:5000"),
            ("localhost:5000", "https://localhost:5000"),
        ] {
            assert_eq!(format!("{:?}", Origin::parse(text).unwrap()), origin);
        }
        for text in [
            "",
            "https://",
            "ftp://r.test",
            "https://u:p@r.test",
            "r.test/path",
            "r.test?query",
            "r.test:0",
            "r.test:99999",
            "r.test:",
            "r.test:+1",
            "[::1",
            "[x]",
            "a b",
        ] {
            assert!(Origin::parse(text).is_err(), "{text}");
        }
        let hub = Origin::of_registry("docker.io", Scheme::Https).unwrap();
        assert_eq!(hub.to_string(), "registry-1.docker.io");
    }

    #[test]
    fn whoever_spoke_with_tls_does_not_lead_to_those_without() {
        let next = |base: &str, location: &str| {
            follow(&base.parse().unwrap(), location).map(|uri| uri.to_string())
        };
        let base = "https://r.test:5000/v2/a/blobs/x";
        for (location, expected) in [
            ("/v2/y?z=1", Some("https://r.test:5000/v2/y?z=1")),
            ("y", Some("https://r.test:5000/v2/a/blobs/y")),
            ("//s.test/y", Some("https://s.test/y")),
            ("https://s.test/y?sig=a%2Fb#f", Some("https://s.test/y?sig=a%2Fb")),
            ("http://r.test:5000/y", Some("https://r.test:5000/y")),
            ("http://r.test/y", Some("https://r.test:5000/y")),
            ("http://s.test/y", None),
            ("file:///etc/passwd", None),
            ("https://u:p@s.test/", None),
            ("https://s.test/a b", None),
            ("", None),
            ("#x", None),
        ] {
            assert_eq!(next(base, location).as_deref(), expected, "{location}");
        }
        assert_eq!(next(base, &format!("/{}", "a".repeat(LONGEST))), None);
        let plain = next("http://r.test/x", "http://s.test/y");
        assert_eq!(plain.as_deref(), Some("http://s.test/y"));
    }

    proptest! {
        #[test]
        fn no_location_leads_away_from_tls(location in ".{0,60}", other in "[a-z:/.@?#\\[\\]0-9]{0,40}") {
            let base: Uri = "https://r.test/v2/".parse().unwrap();
            for location in [location, format!("http://{other}"), other] {
                if let Some(next) = follow(&base, &location) {
                    prop_assert_eq!(next.scheme_str(), Some("https"));
                    prop_assert!(Origin::of(&next).is_some());
                }
            }
        }
    }
}
