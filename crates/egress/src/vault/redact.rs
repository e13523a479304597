//! Takes secrets out of answers, in case a server sends back what it was sent.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderMap, HeaderValue};

use super::{
    armed::{self, Plan},
    encode::Wiped,
    patterns::Rewrite,
    redaction::{REDACTED, redacted},
    spellings::{Seen, Spellings, Work},
};

/// How much may be looked at in a head. Beyond that it says beginnings of secrets and little else.
const IN_HEAD: usize = 1 << 20;
/// Shorter texts are found everywhere by chance.
const TELLING: usize = 6;

/// The secrets of bindings, to be taken out of answers however they are spelt there.
#[derive(Debug)]
pub struct Redactor {
    secrets: Arc<Spellings>,
    /// The same in small letters, as the names of headers are.
    in_names: Spellings,
}

impl Redactor {
    pub(super) fn new<'a>(secrets: impl Iterator<Item = &'a str>, plan: &Plan) -> Self {
        let mut all: Vec<Wiped> = Vec::new();
        for (at, secret) in secrets.enumerate() {
            all.push(Wiped::new(secret.as_bytes().to_vec()));
            let rendered = plan.injections.iter().filter(|injection| injection.secret == at);
            for unpacked in rendered.filter_map(|injection| injection.scheme.unpacked(secret)) {
                if let Some(alone) = alone(&unpacked) {
                    all.push(Wiped::new(alone.to_vec()));
                }
                all.push(unpacked);
            }
        }
        let telling = all.iter().filter(|secret| secret.len() >= TELLING);
        let lower: Vec<_> = telling.map(|one| Wiped::new(one.to_ascii_lowercase())).collect();
        let spellings = |all: &[Wiped]| Spellings::new(all.iter().map(|secret| secret.as_slice()));
        Self { secrets: Arc::new(spellings(&all)), in_names: spellings(&lower) }
    }

    /// One for the secrets of several. Of two that begin together the longer one goes.
    pub(super) fn of_all<'a>(all: impl Iterator<Item = &'a Arc<Self>>) -> Option<Arc<Self>> {
        let all: Vec<_> = all.collect();
        if let [one] = all.as_slice() {
            return Some(Arc::clone(one));
        }
        let secrets = Spellings::of_all(all.iter().map(|one| &*one.secrets));
        let in_names = Spellings::of_all(all.iter().map(|one| &one.in_names));
        let all = Self { secrets: Arc::new(secrets), in_names };
        (!all.secrets.is_empty()).then(|| Arc::new(all))
    }

    /// Goes through the headers of an answer, or through its trailers. Repeated headers stay so.
    /// One whose very name has a secret goes.
    pub fn headers(&self, headers: &mut HeaderMap) {
        let mut work = Work::new(IN_HEAD);
        let told: Vec<_> = headers
            .keys()
            .filter(|name| has(&self.in_names, name.as_str().as_bytes(), &mut work))
            .cloned()
            .collect();
        for name in told {
            headers.remove(name);
        }
        for value in headers.values_mut() {
            if let Cow::Owned(clean) = self.text(value.as_bytes(), &mut work) {
                // What was left of a header and what was put in are fit for one.
                *value = HeaderValue::from_bytes(&clean)
                    .unwrap_or_else(|_| HeaderValue::from_static("[REDACTED]"));
            }
        }
    }

    /// Whether a text has a secret.
    pub fn finds(&self, text: &[u8]) -> bool {
        has(&self.secrets, text, &mut Work::new(IN_HEAD))
    }

    /// Goes through a whole text. One that is too much work goes.
    fn text<'t>(&self, text: &'t [u8], work: &mut Work) -> Cow<'t, [u8]> {
        redacted(&self.secrets, text, work).unwrap_or_else(|| Cow::Owned(REDACTED.to_vec()))
    }

    /// What the body of an answer with these headers goes through. What is compressed does, too: a
    /// server may say so of what is not. And what is said to be empty: trailers follow it.
    /// The length it was announced with is then no longer among them, as [`Armed::request`] says.
    ///
    /// [`Armed::request`]: super::Armed::request
    pub fn body(&self, headers: &mut HeaderMap) -> Option<Rewrite> {
        if self.secrets.is_empty() {
            return None;
        }
        let length = armed::take_length(headers);
        // The sandbox sees in what pieces the answer comes.
        Some(Rewrite::redacting(Arc::clone(&self.secrets), length))
    }
}

/// Whether a text has a secret, or cannot be gone through.
fn has(secrets: &Spellings, text: &[u8], work: &mut Work) -> bool {
    !matches!(secrets.next(text, 0..text.len(), work), Seen::Nothing)
}

/// What is secret of a user and a password: the password, or else a user who has none.
fn alone(text: &[u8]) -> Option<&[u8]> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (user, password) = (text.get(..colon)?, text.get(colon + 1..)?);
    let stands_for_none = password.len() < TELLING || password == b"x-oauth-basic";
    let alone = if stands_for_none { user } else { password };
    (alone.len() >= TELLING).then_some(alone)
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use std::task::Poll;

    use bytes::Bytes;
    use http::header;

    use super::{
        super::armed::{AuthScheme, Injection},
        *,
    };

    impl Redactor {
        fn clean<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
            self.text(text, &mut Work::new(IN_HEAD))
        }
    }

    fn redactor(secret: &str, scheme: AuthScheme) -> Redactor {
        let plan = Plan {
            injections: vec![Injection { header: header::AUTHORIZATION, scheme, secret: 0 }],
            ..Plan::default()
        };
        Redactor::new([secret].into_iter(), &plan)
    }

    #[test]
    fn every_form_of_a_secret_is_taken_out() {
        let redactor = redactor("p/ss \"w\"", AuthScheme::Bearer);
        assert_eq!(&*redactor.clean(b"Bearer p/ss \"w\"!"), b"Bearer [REDACTED]!");
        for text in [
            "p/ss \"w\"",
            "p%2Fss%20%22w%22",
            "p%2fss%20%22w%22",
            "p%2Fss+%22w%22",
            "p/ss \\\"w\\\"",
            "p/ss \\\\\\\"w\\\\\\\"",
        ] {
            let clean = redactor.clean(text.as_bytes());
            assert_eq!(&*clean, REDACTED, "{text}");
        }
    }

    #[test]
    fn user_and_password_of_a_basic_secret_are_taken_out() {
        let redactor = redactor("dXNlcjpodW50ZXIy", AuthScheme::Basic);
        assert_eq!(&*redactor.clean(b"you are user:hunter2!"), b"you are [REDACTED]!");
        assert_eq!(&*redactor.clean(b"Basic dXNlcjpodW50ZXIy"), b"Basic [REDACTED]");
    }

    #[test]
    fn repeated_headers_stay_repeated() {
        let redactor = redactor("hunter2", AuthScheme::Bearer);
        let mut headers = HeaderMap::new();
        for cookie in ["a=hunter2", "b=2", "c=hunter2; Path=/"] {
            headers.append(header::SET_COOKIE, HeaderValue::from_static(cookie));
        }
        redactor.headers(&mut headers);
        let cookies: Vec<_> = headers.get_all(header::SET_COOKIE).iter().collect();
        assert_eq!(cookies, ["a=[REDACTED]", "b=2", "c=[REDACTED]; Path=/"]);
    }

    #[test]
    fn a_body_loses_its_length_and_its_secrets() {
        let redactor = redactor("hunter2", AuthScheme::Bearer);
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("17"));
        let mut body = redactor.body(&mut headers).unwrap();
        assert_eq!(body.length(), Some(17));
        assert!(headers.is_empty());
        let mut work = Work::new(Work::TURN);
        let mut push = |piece: &'static str| body.push(piece.into(), &mut work).unwrap();
        assert_eq!(push("it is hunt"), Poll::Ready("".into()));
        assert_eq!(push("er2\nok"), Poll::Ready("it is [REDACTED]\n".into()));
        assert_eq!(body.finish(&mut work).unwrap(), Poll::Ready("ok".into()));
        for encoding in ["gzip", "", "utf-8"] {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
            let body = redactor.body(&mut headers).unwrap();
            assert_eq!(body.whole(Bytes::from_static(b"hunter2")).unwrap(), REDACTED);
        }
    }

    #[test]
    fn a_header_that_has_a_secret_in_its_name_is_gone() {
        let redactor = redactor("Hunter2", AuthScheme::Bearer);
        let mut headers = HeaderMap::new();
        for name in ["x-hunter2-seen", "x-hunter"] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        redactor.headers(&mut headers);
        assert_eq!(headers.keys().map(http::HeaderName::as_str).collect::<Vec<_>>(), ["x-hunter"]);
    }

    #[test]
    fn what_is_secret_of_a_basic_secret_is_taken_out_alone() {
        for (secret, said, expected) in [
            ("user:hunter2", "user has hunter2", "user has [REDACTED]"),
            ("sk_live_1:", "it is sk_live_1", "it is [REDACTED]"),
            ("ghp_12:x-oauth-basic", "ghp_12 x-oauth-basic", "[REDACTED] x-oauth-basic"),
            ("git:x", "git x", "git x"),
        ] {
            let redactor = redactor(&STANDARD.encode(secret), AuthScheme::Basic);
            let clean = redactor.clean(said.as_bytes());
            assert_eq!(std::str::from_utf8(&clean).unwrap(), expected, "{secret}");
        }
    }

    #[test]
    fn every_way_to_write_json_is_known() {
        let redactor = redactor("a/b&<c>+\"ü", AuthScheme::Bearer);
        for text in [
            r#"a/b&<c>+\"ü"#,
            r#"a\/b&<c>+\"ü"#,
            r#"a/b\u0026\u003cc\u003e+\"ü"#,
            r#"a/b&<c>+\"\u00fc"#,
            r#"a\/b&<c>+\"\u00fc"#,
            r#"a/b\u0026\u003Cc\u003E\u002B\"\u00FC"#,
            r#"a/b&<c>+\\\"ü"#,
            r#"a\\\/b&<c>+\\\"ü"#,
            r#"a/b\\u0026\\u003cc\\u003e+\\\"ü"#,
        ] {
            assert_eq!(&*redactor.clean(text.as_bytes()), REDACTED, "{text}");
        }
    }
}
