//! What a path says, read from its raw form: nothing is decoded, so nothing can be hidden.

/// Where the lifecycle routes are mounted; the first that matches is meant.
pub(crate) const MOUNTS: [&str; 2] = ["/v1", ""];

/// A path below a sandbox: `[/v1]/sandboxes/{id}[/…]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SandboxPath<'a> {
    /// `/v1` or nothing.
    pub(crate) mount: &'static str,
    pub(crate) id: &'a str,
    /// What follows the id, from its `/` on.
    pub(crate) rest: &'a str,
}

impl<'a> SandboxPath<'a> {
    pub(crate) fn parse(path: &'a str) -> Option<Self> {
        MOUNTS.iter().find_map(|mount| {
            let below = path.strip_prefix(mount)?.strip_prefix("/sandboxes/")?;
            let end = below.find('/').unwrap_or(below.len());
            let (id, rest) = below.split_at_checked(end)?;
            Some(Self { mount, id, rest })
        })
    }

    /// The port and what follows it, if this is a path into the sandbox.
    pub(crate) fn proxied(self) -> Option<(&'a str, &'a str)> {
        let below = self.rest.strip_prefix("/proxy/")?;
        let end = below.find('/').unwrap_or(below.len());
        below.split_at_checked(end)
    }
}

/// What a path names below `[/v1]` and a resource such as `/snapshots/`.
pub(crate) fn below<'a>(resource: &str, path: &'a str) -> &'a str {
    let named = MOUNTS.iter().find_map(|mount| path.strip_prefix(mount)?.strip_prefix(resource));
    named.unwrap_or_default()
}

/// The mount under which a path was called.
pub(crate) fn mount(path: &str) -> &'static str {
    if path.starts_with("/v1/") { "/v1" } else { "" }
}

/// Whether the path may be called without an API key: what says that the server is there, and the
/// way into a sandbox, whose own tokens guard it.
pub(crate) fn is_open(path: &str) -> bool {
    if matches!(path, "/health" | "/version" | "/openapi.json") {
        return true;
    }
    let Some((port, rest)) = SandboxPath::parse(path).and_then(SandboxPath::proxied) else {
        return false;
    };
    is_port(port) && rest.split('/').all(|segment| segment != "..")
}

/// Whether a segment of a path can be a port, perhaps with a signature.
fn is_port(segment: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
    };
    let mut words = segment.split('-');
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    words.next().is_some_and(is_number) && {
        let signature: Vec<_> = words.collect();
        matches!(signature.len(), 0 | 2) && signature.into_iter().all(is_word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart_without_decoding() {
        let path = SandboxPath::parse("/v1/sandboxes/x/proxy/80/a%2Fb").expect("a path");
        assert_eq!((path.mount, path.id), ("/v1", "x"));
        assert_eq!(path.proxied(), Some(("80", "/a%2Fb")));
        let bare = SandboxPath::parse("/sandboxes/x/proxy/80").expect("a path");
        assert_eq!((bare.mount, bare.proxied()), ("", Some(("80", ""))));
        assert_eq!(SandboxPath::parse("/v1/snapshots/x"), None);
    }

    #[test]
    fn only_the_exact_paths_are_open() {
        for path in [
            "/health",
            "/version",
            "/openapi.json",
            "/sandboxes/x/proxy/80",
            "/v1/sandboxes/x/proxy/80/",
            "/v1/sandboxes/x/proxy/80/a/b..c",
            "/v1/sandboxes/x/proxy/80-x2qxvk-0abc/a",
        ] {
            assert!(is_open(path), "{path} asks for a key");
        }
        for path in [
            "/",
            "/healthz",
            "/v1/health",
            "/health/",
            "/v1/sandboxes",
            "/v1/sandboxes/x",
            "/v1/sandboxes/x/proxy/",
            "/v1/sandboxes/x/proxy/http",
            "/v1/sandboxes/x/proxy/80-",
            "/v1/sandboxes/x/proxy/80-1",
            "/v1/sandboxes/x/proxy/80-1-",
            "/v1/sandboxes/x/proxy/80-1-2-3",
            "/v1/sandboxes/x/proxy/80-1-%32",
            "/v1/sandboxes/x/proxy/-1-2",
            "/v1/sandboxes/x/y/proxy/80",
            "/v1/sandboxes/x/proxy/80/../../..",
            "/v2/sandboxes/x/proxy/80",
        ] {
            assert!(!is_open(path), "{path} is open");
        }
    }
}
