//! Takes secrets out of answers, in case a server sends back what it was sent.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderMap, HeaderValue};
use secrecy::zeroize::Zeroizing;

use super::{
    armed::{self, Plan},
    encode::{Encoding, Wiped},
    patterns::{Hold, Patterns, Rewrite},
};

const REDACTED: &[u8] = b"[REDACTED]";

/// The secrets of one binding in every form in which it sends them, to be taken out of answers.
#[derive(Debug)]
pub struct Redactor {
    patterns: Arc<Patterns>,
}

impl Redactor {
    pub(super) fn new<'a>(secrets: impl Iterator<Item = &'a str>, plan: &Plan) -> Self {
        let mut forms = Vec::new();
        for (at, secret) in secrets.enumerate() {
            for encoding in [Encoding::Raw, Encoding::Percent, Encoding::Form, Encoding::Json] {
                forms.push(encoding.apply(secret));
            }
            forms.push(lower(&Encoding::Percent.apply(secret)));
            // A server that repeats a JSON body does so inside a string of its answer.
            let json = Encoding::Json.apply(secret);
            forms.extend(std::str::from_utf8(&json).ok().map(|json| Encoding::Json.apply(json)));
            let rendered = plan.injections.iter().filter(|injection| injection.secret == at);
            for injection in rendered {
                forms.push(injection.scheme.render(secret));
                forms.extend(injection.scheme.unpacked(secret));
            }
        }
        let put = || Zeroizing::new(REDACTED.to_vec());
        Self { patterns: Arc::new(Patterns::new(forms.into_iter().map(|form| (form, put())))) }
    }

    /// Goes through the headers of an answer, or through its trailers. Repeated headers stay so.
    pub fn headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            if let Cow::Owned(clean) = self.text(value.as_bytes()) {
                // What was left of a header and what was put in are fit for one.
                *value = HeaderValue::from_bytes(&clean)
                    .unwrap_or_else(|_| HeaderValue::from_static("[REDACTED]"));
            }
        }
    }

    /// Goes through a whole text.
    fn text<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        // Without a bound on its growth nothing is refused.
        self.patterns.replace(text, &mut { usize::MAX }).unwrap_or(Cow::Borrowed(REDACTED))
    }

    /// What the body of an answer with these headers goes through, if anything can be found in it.
    /// The length it was announced with is then no longer among them, as [`Armed::request`] says.
    ///
    /// [`Armed::request`]: super::Armed::request
    pub fn body(&self, headers: &mut HeaderMap) -> Option<Rewrite> {
        if self.patterns.is_empty()
            || !armed::is_plain(headers)
            || armed::length(headers) == Some(0)
        {
            return None;
        }
        let length = armed::take_length(headers);
        // The sandbox sees in what pieces the answer comes.
        Some(Rewrite::new(Arc::clone(&self.patterns), Hold::Blindly, usize::MAX, length))
    }
}

/// The same with `%2f` instead of `%2F`; letters that stand for themselves stay as they are.
fn lower(percent: &Wiped) -> Wiped {
    let mut text = percent.clone();
    let mut escaped = 0;
    for byte in text.iter_mut() {
        if *byte == b'%' {
            escaped = 2;
        } else if escaped > 0 {
            escaped -= 1;
            byte.make_ascii_lowercase();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::header;

    use super::{
        super::armed::{AuthScheme, Injection},
        *,
    };

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
        for text in [
            "p/ss \"w\"",
            "Bearer p/ss \"w\"",
            "p%2Fss%20%22w%22",
            "p%2fss%20%22w%22",
            "p%2Fss+%22w%22",
            "p/ss \\\"w\\\"",
            "p/ss \\\\\\\"w\\\\\\\"",
        ] {
            let clean = redactor.text(text.as_bytes());
            assert_eq!(&*clean, REDACTED, "{text}");
        }
    }

    #[test]
    fn user_and_password_of_a_basic_secret_are_taken_out() {
        let redactor = redactor("dXNlcjpodW50ZXIy", AuthScheme::Basic);
        assert_eq!(&*redactor.text(b"you are user:hunter2!"), b"you are [REDACTED]!");
        assert_eq!(&*redactor.text(b"Basic dXNlcjpodW50ZXIy"), REDACTED);
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
        assert_eq!(body.push(Bytes::from_static(b"it is hunt")).unwrap(), "");
        assert_eq!(body.push(Bytes::from_static(b"er2\nok")).unwrap(), "it is [REDACTED]\n");
        assert_eq!(body.finish().unwrap(), "ok");
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("17"));
        assert!(redactor.body(&mut headers).is_none());
        assert!(headers.contains_key(header::CONTENT_LENGTH));
    }
}
