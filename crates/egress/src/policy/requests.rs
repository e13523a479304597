//! Rules about single requests.
//!
//! Servers read the same request differently: some decode a slash before they look, some drop
//! parameters, some take the method from a header. A rule that allows must fit a request in every
//! way in which it may be read, a rule that denies in one of them.

use super::{
    readings::{Readings, bare, decoded, is_malformed, normal},
    target::BadTarget,
};
use crate::{Verdict, vault::path::PathPattern};

const MOST_METHODS: usize = 16;
const MOST_PATHS: usize = 64;
const LONGEST_PATH: usize = 1024;

/// What of the requests to a host a rule is about.
#[derive(Debug)]
pub(crate) struct Requests {
    /// All if absent.
    methods: Option<Vec<String>>,
    paths: Option<Vec<Pattern>>,
}

impl Requests {
    pub(super) fn new(
        methods: Option<&[String]>,
        paths: Option<&[String]>,
    ) -> Result<Option<Self>, BadTarget> {
        let methods = methods.map(read_methods).transpose()?;
        let paths = paths.map(read_paths).transpose()?;
        Ok((methods.is_some() || paths.is_some()).then_some(Self { methods, paths }))
    }

    pub(super) fn fits(&self, verdict: Verdict, request: &Readings) -> bool {
        let Self { methods, paths } = self;
        match verdict {
            Verdict::Allow => {
                methods.as_ref().is_none_or(|known| {
                    let fits = |method: &String| known.contains(method);
                    request.methods.as_ref().is_some_and(|methods| methods.iter().all(fits))
                }) && paths.as_ref().is_none_or(|patterns| {
                    let fits = |path: &Vec<u8>| patterns.iter().any(|known| known.allows(path));
                    request.paths.as_ref().is_some_and(|paths| paths.iter().all(fits))
                })
            }
            Verdict::Deny => {
                methods.as_ref().is_none_or(|known| {
                    let same =
                        |method: &String| known.iter().any(|it| it.eq_ignore_ascii_case(method));
                    request.methods.as_ref().is_none_or(|methods| methods.iter().any(same))
                }) && paths.as_ref().is_none_or(|patterns| {
                    let fits = |path: &Vec<u8>| patterns.iter().any(|known| known.denies(path));
                    request.paths.as_ref().is_none_or(|paths| paths.iter().any(fits))
                })
            }
        }
    }
}

fn read_methods(methods: &[String]) -> Result<Vec<String>, BadTarget> {
    let read = |method: &String| {
        let method = method.trim().to_ascii_uppercase();
        let never = matches!(method.as_str(), "CONNECT" | "TRACE");
        let is_one = http::Method::from_bytes(method.as_bytes()).is_ok();
        if never || !is_one || method.len() > 32 { Err(BadTarget::Methods) } else { Ok(method) }
    };
    if methods.is_empty() || methods.len() > MOST_METHODS {
        return Err(BadTarget::Methods);
    }
    methods.iter().map(read).collect()
}

fn read_paths(paths: &[String]) -> Result<Vec<Pattern>, BadTarget> {
    if paths.is_empty() || paths.len() > MOST_PATHS {
        return Err(BadTarget::Paths("`paths` are 1 to 64; leave it out for all paths"));
    }
    paths.iter().map(|path| Pattern::parse(path).map_err(BadTarget::Paths)).collect()
}

/// Paths that a rule or a binding is about, as they are written and as they are meant.
#[derive(Debug)]
pub(crate) struct Pattern {
    is_prefix: bool,
    forms: Vec<Vec<u8>>,
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > LONGEST_PATH {
            return Err("a path has at most 1024 characters");
        }
        let path = PathPattern::parse(text)?;
        if is_malformed(path.as_str()) {
            return Err("a `%` in a path stands before two hexadecimal digits");
        }
        Ok(Self::new(&path))
    }

    pub(crate) fn new(path: &PathPattern) -> Self {
        let text = path.as_str();
        let is_prefix = matches!(path, PathPattern::Prefix(_));
        let meant = decoded(text.as_bytes()).into_owned();
        // The beginning of a path may end within a segment, of which nothing is dropped.
        let bare = (!is_prefix).then(|| bare(&meant));
        Self { is_prefix, forms: [normal(text), meant].into_iter().chain(bare).collect() }
    }

    pub(crate) fn allows(&self, path: &[u8]) -> bool {
        let fits =
            |form: &Vec<u8>| if self.is_prefix { path.starts_with(form) } else { path == form };
        self.forms.iter().any(fits)
    }

    /// Some servers know no case, and no slash at the end.
    fn denies(&self, path: &[u8]) -> bool {
        let trimmed = path.strip_suffix(b"/").unwrap_or(path);
        let fits = |form: &Vec<u8>| {
            let begins = |path: &[u8]| {
                path.get(..form.len()).is_some_and(|start| start.eq_ignore_ascii_case(form))
            };
            let is_it = |path: &[u8]| begins(path) && (self.is_prefix || path.len() == form.len());
            is_it(path) || is_it(trimmed)
        };
        self.forms.iter().any(fits)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};

    use super::*;

    fn request(method: &str, path: &str) -> Readings {
        Readings::new(method, path, &HeaderMap::new())
    }

    fn about(methods: &[&str], paths: &[&str]) -> Requests {
        let owned =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let (methods, paths) = (owned(methods), owned(paths));
        let given = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
        Requests::new(given(&methods).as_deref(), given(&paths).as_deref()).unwrap().unwrap()
    }

    #[test]
    fn a_path_is_allowed_only_if_it_is_in_every_reading() {
        let rule = about(&[], &["/public/*", "/user", "/a%20b", "/inc."]);
        for (path, fits) in [
            ("/public/", true),
            ("/public/a/b", true),
            ("/public//a", true),
            ("/publi%63/a", true),
            ("/public/a%2fb", true),
            ("/public/x;a=b/c", true),
            ("/public/100%25", true),
            ("/public/./a", true),
            ("/./public/a", false),
            ("/public/%2e/a", false),
            ("/public/./../user", false),
            ("/public/.", false),
            ("/user", true),
            ("/%75ser", true),
            ("/a%20b", true),
            ("/public/K%C3%B6ln/%E4%BD%A0%EF%BC%8C", true),
            ("/public/Inc.", true),
            ("/inc.", true),
            ("/public/%ef%bc%8e%ef%bc%8e/user", false),
            ("/public/%e2%80%a5/user", false),
            ("/public/%ef%bc%852e%ef%bc%852e/user", false),
            ("/public/.%e2%80%8b./user", false),
            ("/public/%e2%84%80", false),
            ("/user.", false),
            ("/user%20", false),
            ("/public", false),
            ("/Public/a", false),
            ("/public%2fa", false),
            ("/public;x/a", false),
            ("/user/", false),
            ("/user;x", false),
            ("/user%3fx", false),
            ("/public/../user", false),
            ("/public/%2e%2e/user", false),
            ("/public/%252e%252e/user", false),
            ("/public/..;/user", false),
            ("/public\\a", false),
            ("/public/%0a", false),
            ("/public/%00", false),
            ("/public/%c0%af", false),
            ("/public/%u002f", false),
            ("/public/%", false),
            ("*", false),
            ("", false),
        ] {
            assert_eq!(rule.fits(Verdict::Allow, &request("GET", path)), fits, "{path}");
        }
    }

    #[test]
    fn a_path_is_denied_if_it_is_in_any_reading() {
        let rule = about(&[], &["/admin*", "/user"]);
        for (path, fits) in [
            ("/admin", true),
            ("/ADMIN/x", true),
            ("//admin", true),
            ("/./admin", true),
            ("/././/a.test/admin", true),
            ("/x/./y", false),
            ("/%61dmin", true),
            ("/adm%2569n", true),
            ("/%2fadmin", true),
            (";x/admin", true),
            ("/user/", true),
            ("/User;x=1", true),
            ("/user%3fx", true),
            ("/x/../admin", true),
            ("/x/%2e%2e/y", true),
            ("/user.", true),
            ("/user%20", true),
            ("/user..%20;x/", true),
            ("/user%c2%a0", true),
            ("/user%e2%80%8b", true),
            ("/%ef%bd%95ser", true),
            ("/%EF%BC%8Fuser", true),
            ("/%e2%93%a4ser", true),
            ("/%C3%BCser", false),
            ("/x", false),
            ("/users", false),
            ("/x/admin", false),
        ] {
            assert_eq!(rule.fits(Verdict::Deny, &request("GET", path)), fits, "{path}");
        }
    }

    #[test]
    fn methods_are_what_any_server_takes_them_for() {
        let rule = about(&["get", "POST"], &[]);
        assert!(rule.fits(Verdict::Allow, &request("GET", "/a/../b")));
        assert!(!rule.fits(Verdict::Allow, &request("get", "/")));
        assert!(rule.fits(Verdict::Deny, &request("post", "/")));
        assert!(!rule.fits(Verdict::Deny, &request("PUT", "/")));
        let mut headers = HeaderMap::new();
        headers.insert("x-http-method-override", "delete".parse().unwrap());
        assert!(!rule.fits(Verdict::Allow, &Readings::new("POST", "/", &headers)));
        let rule = about(&["DELETE"], &[]);
        assert!(rule.fits(Verdict::Deny, &Readings::new("POST", "/", &headers)));
        headers.insert("x-original-url", "/admin?x".parse().unwrap());
        let rule = about(&[], &["/public*"]);
        assert!(!rule.fits(Verdict::Allow, &Readings::new("POST", "/public", &headers)));
        let rule = about(&[], &["/admin"]);
        assert!(rule.fits(Verdict::Deny, &Readings::new("POST", "/public", &headers)));
    }

    #[test]
    fn a_rule_that_denies_is_not_passed_by_in_other_words() {
        let deny = about(&["DELETE"], &[]);
        let named = |name: &'static str, value: &str| {
            HeaderMap::from_iter([(HeaderName::from_static(name), value.parse().unwrap())])
        };
        for (name, value) in [
            ("x_http_method_override", "DELETE"),
            ("x.http.method_override", "DELETE"),
            ("x-original-method", "DELETE"),
            ("x-method", "delete"),
            ("x-forwarded-method", "DELETE"),
            ("x-override-method", "DELETE"),
            ("x-http-method-override", "DELETE,"),
            ("x-http-method-override", "GET, DELETE"),
            ("x-http-method-override", "\"DELETE\""),
            ("x-http-method-override", "DELETE;x"),
            ("x-http-method-override", ""),
        ] {
            let request = Readings::new("GET", "/", &named(name, value));
            assert!(deny.fits(Verdict::Deny, &request), "{name}: {value}");
            assert!(!about(&["GET"], &[]).fits(Verdict::Allow, &request), "{name}: {value}");
        }
        let harmless = Readings::new("GET", "/", &named("x-http-method-override", "POST"));
        assert!(!deny.fits(Verdict::Deny, &harmless));

        let deny = about(&[], &["/admin"]);
        let allow = about(&[], &["/public*", "/peer*", "//*"]);
        for path in ["//a.test/admin", "///a.test/admin", "/%2fa.test/admin", "//a.test//admin?x"] {
            assert!(deny.fits(Verdict::Deny, &request("GET", path)), "{path}");
            assert!(!allow.fits(Verdict::Allow, &request("GET", path)), "{path}");
        }
        for (name, value) in [
            ("x_original_url", "/admin"),
            ("x-original-uri", "/admin"),
            ("x-forwarded-uri", "/admin?x"),
            ("x-original-path", "/admin"),
            ("x-envoy-original-path", "/admin"),
            ("x-forwarded-path", "/admin"),
            ("x-forwarded-prefix", "/admin"),
            ("x-override-url", "/admin"),
            ("x-original-url", "https://a.test/admin"),
            ("x-original-url", "//a.test/admin"),
            ("x-original-url", "admin"),
            ("x-original-url", "/public, /admin"),
            ("x-original-url", ""),
        ] {
            let request = Readings::new("GET", "/public", &named(name, value));
            assert!(deny.fits(Verdict::Deny, &request), "{name}: {value}");
            assert!(!allow.fits(Verdict::Allow, &request), "{name}: {value}");
        }
        let request = Readings::new("GET", "/public", &named("x-original-url", "/publicly"));
        assert!(!deny.fits(Verdict::Deny, &request) && allow.fits(Verdict::Allow, &request));
        let mut many = HeaderMap::new();
        for _ in 0..5 {
            many.append("x-method", "GET".parse().unwrap());
        }
        assert!(Readings::new("GET", "/", &many).is_ambiguous());
    }

    #[test]
    fn what_could_never_match_is_refused() {
        let texts = |text: &str| vec![text.to_owned()];
        for method in ["", "G T", "CONNECT", "trace", &"A".repeat(33)] {
            assert!(Requests::new(Some(&texts(method)), None).is_err(), "{method:?}");
        }
        for path in ["", "x", "/a?b", "/a/../b", "/a*b", "/%zz", "/a b", &"/".repeat(1025)] {
            assert!(Requests::new(None, Some(&texts(path))).is_err(), "{path:?}");
        }
        assert!(Requests::new(Some(&[]), None).is_err() && Requests::new(None, Some(&[])).is_err());
        assert!(Requests::new(None, None).unwrap().is_none());
    }
}
