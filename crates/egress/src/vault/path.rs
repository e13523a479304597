//! Paths of requests: which ones a binding or a rule is about, and which ones nobody can be sure about.

use std::fmt;

/// Paths that a binding is for, or a rule about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathPattern {
    Exact(String),
    /// Every path that begins like this.
    Prefix(String),
}

impl PathPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (path, prefix) = match text.strip_suffix('*') {
            Some(path) => (path, true),
            None => (text, false),
        };
        if !path.starts_with('/') {
            return Err("a path begins with /");
        }
        if path.contains('*') {
            return Err("a `*` in a path stands only at its end");
        }
        if !path.bytes().all(|b| b.is_ascii_graphic() && b != b'?' && b != b'#') {
            return Err("a path has no spaces, no ? and no #");
        }
        if is_doubtful(path) {
            return Err("a path has no dot segments, backslashes or encodings of encodings");
        }
        let path = path.to_owned();
        Ok(if prefix { Self::Prefix(path) } else { Self::Exact(path) })
    }

    /// Without the star.
    pub(crate) fn as_str(&self) -> &str {
        let (Self::Exact(path) | Self::Prefix(path)) = self;
        path
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path.starts_with(prefix.as_str()),
        }
    }

    pub(crate) fn collides(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(path), any) | (any, Self::Exact(path)) => any.matches(path),
            (Self::Prefix(one), Self::Prefix(other)) => {
                one.starts_with(other.as_str()) || other.starts_with(one.as_str())
            }
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(path) => f.write_str(path),
            Self::Prefix(path) => write!(f, "{path}*"),
        }
    }
}

/// The longest path that is looked into: few servers take longer ones.
pub(crate) const LONGEST: usize = 8 << 10;
/// How often nobody honest encodes a path that is encoded already.
pub(crate) const DEEPEST: usize = 4;

/// Whether a server may take the path for another one than it looks like: dot segments, plain or
/// encoded, backslashes, encodings of encodings. One encoded slash is left to [`slashed`].
pub(crate) fn is_doubtful(path: &str) -> bool {
    if path.len() > LONGEST {
        return true;
    }
    let lower = path.to_ascii_lowercase();
    if lower.contains('\\') || lower.contains("%5c") || lower.contains("%00") {
        return true;
    }
    let mut inner = lower.clone();
    for _ in 0..DEEPEST {
        inner = inner.replace("%25", "%");
    }
    if inner.contains("%25") {
        return true;
    }
    if inner != lower && ["%2f", "%2e", "%5c"].iter().any(|hidden| inner.contains(hidden)) {
        return true;
    }
    let plain = lower.replace("%2e", ".").replace("%2f", "/");
    // What follows a semicolon in a segment is a parameter to some servers; a question or number sign
    // that was encoded ends the path for some, and others drop spaces.
    let segment = |part: &str| part.split([';', '?', '#']).next().map(str::trim).map(is_dots);
    plain.split('/').any(|part| segment(part) == Some(true))
}

fn is_dots(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

/// The same path without segments that are one dot, as in the addresses of flat repositories of apt.
/// The last one stays: without it the path would be another.
pub(crate) fn undotted(path: &str) -> String {
    let mut path = path.to_owned();
    while path.contains("/./") {
        path = path.replace("/./", "/");
    }
    path
}

/// The same path with its encoded slashes written out, if it has any.
pub(crate) fn slashed(path: &str) -> Option<String> {
    let has = path.contains("%2f") || path.contains("%2F");
    has.then(|| path.replace("%2f", "/").replace("%2F", "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_matches_every_beginning() {
        let prefix = PathPattern::parse("/repos/*").unwrap();
        assert!(prefix.matches("/repos/") && prefix.matches("/repos/a/b"));
        assert!(!prefix.matches("/repos") && !prefix.matches("/x/repos/"));
        let exact = PathPattern::parse("/user").unwrap();
        assert!(exact.matches("/user") && !exact.matches("/user/") && !exact.matches("/users"));
        assert_eq!(prefix.to_string(), "/repos/*");
        for text in ["", "*", "repos", "/a*b", "/a?b", "/a#b", "/a b", "/a/../b", "/a%2fb\\"] {
            assert!(PathPattern::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn patterns_with_a_path_in_common_collide() {
        for (one, other, expected) in [
            ("/*", "/a", true),
            ("/a", "/a", true),
            ("/a", "/b", false),
            ("/a/*", "/a", false),
            ("/a/*", "/a/b/*", true),
            ("/a/*", "/b/*", false),
        ] {
            let parse = |text| PathPattern::parse(text).unwrap();
            assert_eq!(parse(one).collides(&parse(other)), expected, "{one} {other}");
            assert_eq!(parse(other).collides(&parse(one)), expected, "{other} {one}");
        }
    }

    #[test]
    fn what_a_server_may_read_otherwise_is_doubtful() {
        for path in [
            "/a/../b",
            "/..",
            "/a/.",
            "/%2e%2e/b",
            "/.%2E/b",
            "/a\\b",
            "/a%5Cb",
            "/a%252fb",
            "/a%25252Fb",
            "/%252e%252e/b",
            "/a%2f..%2fb",
            "/a/..;x=1/b",
            "/a/.. /b",
            "/a/..#/b",
            "/a/..?",
            "/a%00",
        ] {
            assert!(is_doubtful(path), "{path} is not");
        }
        for path in ["/", "/a/b", "/a%2Fb", "/a..b/...", "/100%25", "/a%20b", "/.git"] {
            assert!(!is_doubtful(path), "{path} is");
        }
        assert_eq!(slashed("/a%2Fb%2fc").as_deref(), Some("/a/b/c"));
        assert_eq!(slashed("/a"), None);
        assert_eq!(undotted("/a/./././b/./c"), "/a/b/c");
        assert_eq!(undotted("/a/.b/%2e/./../."), "/a/.b/%2e/../.");
    }
}
