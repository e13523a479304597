use std::{fmt, net::IpAddr};

use crate::{BadName, Name};

/// Hosts that a binding is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum HostPattern {
    /// This host alone.
    Exact(Name),
    /// Every host below this domain, and not the domain itself.
    Below(Name),
}

/// What cannot say which hosts are meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadHost {
    #[error("{0}")]
    Name(#[from] BadName),
    #[error("it is a host and not a URL: leave out what is before and after the name")]
    Url,
    #[error("a host of a binding is a name, not an address")]
    Address,
    #[error("a host of a binding has a dot in it")]
    NoDot,
    #[error("a `*` stands only for the first part, as in `*.example.com`")]
    Star,
}

impl HostPattern {
    /// What a name below a wildcard is called when the policy is asked about all of them.
    const PROBE: &str = "probe";

    pub(super) fn parse(text: &str) -> Result<Self, BadHost> {
        let (rest, below) = match text.trim().strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (text.trim(), false),
        };
        if text.contains('/') {
            return Err(BadHost::Url);
        }
        if rest.contains('*') {
            return Err(BadHost::Star);
        }
        let bare = rest.trim_start_matches('[').trim_end_matches(']');
        if bare.parse::<IpAddr>().is_ok() {
            return Err(BadHost::Address);
        }
        if rest.contains('_') {
            return Err(BadName::Character('_').into());
        }
        let name = Name::parse(rest)?;
        let last = name.as_str().rsplit('.').next().unwrap_or_default();
        if last.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadHost::Address);
        }
        if name.domains().next().is_none() {
            return Err(BadHost::NoDot);
        }
        if !below {
            return Ok(Self::Exact(name));
        }
        // One that leaves no room for a name below it is for nobody.
        Name::parse(&format!("{}.{name}", Self::PROBE))?;
        Ok(Self::Below(name))
    }

    /// Whether there is a host that both are for with the same precedence. An exact one goes before
    /// a wildcard, so these never collide.
    pub(super) fn collides(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(one), Self::Exact(other)) => one == other,
            (Self::Below(one), Self::Below(other)) => {
                one == other
                    || one.domains().any(|above| above == other.as_str())
                    || other.domains().any(|above| above == one.as_str())
            }
            (Self::Exact(_), Self::Below(_)) | (Self::Below(_), Self::Exact(_)) => false,
        }
    }

    /// A host that it is for: the policy is asked about this one.
    pub(super) fn example(&self) -> Option<Name> {
        match self {
            Self::Exact(name) => Some(name.clone()),
            Self::Below(domain) => Name::parse(&format!("{}.{domain}", Self::PROBE)).ok(),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => write!(f, "{name}"),
            Self::Below(domain) => write!(f, "*.{domain}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        HostPattern::parse(text).unwrap()
    }

    #[test]
    fn hosts_are_names_with_a_dot_or_wildcards_below_one() {
        assert_eq!(pattern(" API.Example.com. ").to_string(), "api.example.com");
        assert_eq!(pattern("*.Example.com").to_string(), "*.example.com");
        let long = format!("*.{}.com", vec!["a"; 123].join("."));
        for text in [
            "",
            "localhost",
            "*.com",
            "*",
            "a.*.com",
            "*foo.com",
            "**.a.com",
            "10.0.0.1",
            "[::1]",
            "1.2.3.4.5",
            "https://a.com",
            "a.com/x",
            "a.com:443",
            "a_b.com",
            "ä.de",
            "*.1.2.3.4",
            &long,
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn who_writes_a_url_is_told_so() {
        for text in ["https://a.com", "a.com/x", "*.a.com/"] {
            assert_eq!(HostPattern::parse(text), Err(BadHost::Url), "{text}");
        }
    }

    #[test]
    fn only_hosts_of_one_kind_collide() {
        for (one, other, expected) in [
            ("a.b.c", "a.b.c", true),
            ("a.b.c", "x.b.c", false),
            ("*.b.c", "*.b.c", true),
            ("*.b.c", "*.a.b.c", true),
            ("*.a.c", "*.b.c", false),
            ("a.b.c", "*.b.c", false),
        ] {
            assert_eq!(pattern(one).collides(&pattern(other)), expected, "{one} {other}");
            assert_eq!(pattern(other).collides(&pattern(one)), expected, "{other} {one}");
        }
    }
}
