use super::range::Range;
use crate::{BadName, Name};

/// Whom a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// This name and no other.
    Name(Name),
    /// Every name below this one, but not the one itself.
    Below(Name),
    Range(Range),
}

/// What a rule cannot be about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    #[error("it is empty")]
    Empty,
    #[error("a target is a host and not a URL: write `example.com`")]
    Url,
    #[error("a target has no path: write `example.com`, or a range such as `10.0.0.0/8`")]
    Path,
    #[error("the length of a range is 0 to 32 for IPv4 and 0 to 128 for IPv6")]
    Length,
    #[error("a target has no port: put the number into the `ports` of the rule")]
    Port,
    #[error("an address stands without brackets and without a zone")]
    Dressed,
    #[error("a rule about everything is the policy's `defaultAction`")]
    Everything,
    #[error("`*` stands only in front, for all names below a domain: `*.example.com`")]
    Star,
    #[error("a name does not end in a number, and this is no address")]
    Number,
    #[error("{0}")]
    Name(#[from] BadName),
    #[error("inside a sandbox this is the sandbox itself, which needs no rule")]
    Itself,
    #[error("these are addresses that the server gives to names: write the name")]
    Synthetic,
    #[error("`ports` are 1 to 64 numbers of 1 to 65535; leave it out for all ports")]
    Ports,
    #[error("`methods` are 1 to 16 words such as GET; CONNECT and TRACE are never passed on")]
    Methods,
    #[error("its `paths` cannot be meant: {0}")]
    Paths(&'static str),
    #[error("`methods` and `paths` are asked of names: write the name instead of the address")]
    Nameless,
    #[error("nothing private is in it: write a name, or a range inside one that is guarded")]
    Public,
}

impl Target {
    /// Reads what a person wrote, or says what would never match as it stands.
    pub(crate) fn parse(text: &str) -> Result<Self, BadTarget> {
        let text = text.trim();
        if text.is_empty() {
            return Err(BadTarget::Empty);
        }
        if let Some(range) = Range::parse(text) {
            return range.map(Self::Range).map_err(|_| BadTarget::Length);
        }
        if text.contains("://") {
            return Err(BadTarget::Url);
        }
        if text.contains('/') {
            return Err(BadTarget::Path);
        }
        if text.starts_with('[') || text.contains('%') {
            return Err(BadTarget::Dressed);
        }
        if text.contains(':') {
            return Err(BadTarget::Port);
        }
        if matches!(text, "*" | "*." | "*.*") {
            return Err(BadTarget::Everything);
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(domain) => (true, domain),
            None => (false, text),
        };
        if name.contains('*') {
            return Err(BadTarget::Star);
        }
        let name = Name::parse(name)?;
        if ends_in_a_number(&name) {
            return Err(BadTarget::Number);
        }
        if name.as_str().rsplit('.').next() == Some("localhost") {
            return Err(BadTarget::Itself);
        }
        Ok(if below { Self::Below(name) } else { Self::Name(name) })
    }
}

/// Whether two targets have a host in common, as far as that can be told from the targets.
pub fn meet(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (Target::parse(one), Target::parse(other)) else { return false };
    let is_below = |name: &Name, domain: &Name| name.domains().any(|it| it == domain.as_str());
    match (&one, &other) {
        (Target::Name(one), Target::Name(other)) => one == other,
        (Target::Name(name), Target::Below(domain))
        | (Target::Below(domain), Target::Name(name)) => is_below(name, domain),
        (Target::Below(one), Target::Below(other)) => {
            one == other || is_below(one, other) || is_below(other, one)
        }
        (Target::Range(one), Target::Range(other)) => one.holds(*other) || other.holds(*one),
        (Target::Range(_), _) | (_, Target::Range(_)) => false,
    }
}

/// Programs read such names as addresses, in ways of their own: `127.1`, `0x7f000001`.
fn ends_in_a_number(name: &Name) -> bool {
    let last = name.as_str().rsplit('.').next().unwrap_or_default();
    let digits = |text: &str, allowed: fn(&u8) -> bool| text.as_bytes().iter().all(allowed);
    digits(last, u8::is_ascii_digit)
        || last.strip_prefix("0x").is_some_and(|rest| digits(rest, u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_names_domains_and_ranges() {
        let name = |text| Name::parse(text).unwrap();
        for (text, target) in [
            (" Example.COM ", Target::Name(name("example.com"))),
            ("example.com.", Target::Name(name("example.com"))),
            ("*.Example.com", Target::Below(name("example.com"))),
            ("*.com", Target::Below(name("com"))),
            ("xn--bcher-kva.example", Target::Name(name("xn--bcher-kva.example"))),
            ("1.example", Target::Name(name("1.example"))),
            ("10.0.0.0/8", Target::Range(Range::v4([10, 0, 0, 0], 8))),
            ("10.0.0.1/8", Target::Range(Range::v4([10, 0, 0, 0], 8))),
            ("::1", Target::Range(Range::v6([0, 0, 0, 0, 0, 0, 0, 1], 128))),
        ] {
            assert_eq!(Target::parse(text), Ok(target), "{text:?}");
        }
    }

    #[test]
    fn targets_meet_where_a_host_is_in_both() {
        for (one, other, is_so) in [
            ("a.example", "A.example.", true),
            ("a.example", "b.example", false),
            ("a.b.example", "*.example", true),
            ("example", "*.example", false),
            ("*.b.example", "*.example", true),
            ("*.example", "*.example", true),
            ("*.a.example", "*.b.example", false),
            ("10.1.0.0/16", "10.0.0.0/8", true),
            ("10.1.0.1", "10.2.0.0/16", false),
            ("10.1.0.1", "*.example", false),
            ("https://a.example", "a.example", false),
        ] {
            assert_eq!((meet(one, other), meet(other, one)), (is_so, is_so), "{one} {other}");
        }
    }

    #[test]
    fn what_could_never_match_is_refused_with_its_reason() {
        for (text, problem) in [
            ("  ", BadTarget::Empty),
            ("https://example.com", BadTarget::Url),
            ("example.com/path", BadTarget::Path),
            ("10.0.0.0/40", BadTarget::Length),
            ("example.com:443", BadTarget::Port),
            ("[::1]", BadTarget::Dressed),
            ("[::1]:80", BadTarget::Dressed),
            ("fe80::1%eth0", BadTarget::Dressed),
            ("*", BadTarget::Everything),
            ("*.", BadTarget::Everything),
            ("*foo.com", BadTarget::Star),
            ("a.*.com", BadTarget::Star),
            ("*.*.com", BadTarget::Star),
            ("127.1", BadTarget::Number),
            ("2130706433", BadTarget::Number),
            ("0x7f000001", BadTarget::Number),
            ("*.2.3.4", BadTarget::Number),
            ("LocalHost.", BadTarget::Itself),
            ("*.localhost", BadTarget::Itself),
            ("web.localhost", BadTarget::Itself),
            ("bücher.example", BadTarget::Name(BadName::Character('ü'))),
            ("a..b", BadTarget::Name(BadName::Label)),
        ] {
            assert_eq!(Target::parse(text), Err(problem), "{text:?}");
        }
    }
}
