//! A binding with its secrets at hand: what it does to a request and to the answer.

use std::{borrow::Cow, fmt, sync::Arc};

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Uri, header,
    request::Parts,
    uri::{InvalidUri, PathAndQuery},
};
use osb_api::egress::Place;
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};

use super::{
    encode::{Encoding, Wiped},
    path,
    patterns::{Overgrown, Patterns, Rewrite},
    redact::Redactor,
};

/// How much longer the secrets may make the head of a request, and its body.
const ROOM_IN_HEAD: usize = 64 << 10;
const ROOM_IN_BODY: usize = 1 << 20;

/// With the padding at its end, or without: servers take both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Headers in which no placeholder is looked for, beside all that begin with `proxy-auth` and
/// `x-forwarded-`.
const UNTOUCHED: [&str; 8] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "forwarded",
];

/// What a binding does, by the position of its secrets.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) injections: Vec<Injection>,
    pub(super) substitutions: Vec<Stand>,
}

#[derive(Debug)]
pub(super) struct Injection {
    pub(super) header: HeaderName,
    pub(super) scheme: AuthScheme,
    pub(super) secret: usize,
}

/// What stands before the secret in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthScheme {
    Bearer,
    Basic,
    None,
}

/// A text that stands for a secret.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) placeholder: String,
    pub(super) places: Vec<Place>,
    pub(super) secret: usize,
}

/// A binding that is ready to be used.
pub struct Armed {
    injected: Vec<(HeaderName, Wiped)>,
    in_path: Patterns,
    in_query: Patterns,
    in_headers: Patterns,
    in_json: Arc<Patterns>,
    in_form: Arc<Patterns>,
    in_text: Arc<Patterns>,
    redactor: Arc<Redactor>,
}

/// A secret that cannot stand where the binding puts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("a secret for a header must have no line breaks and no other control characters")]
    Header,
}

/// Why a request with this binding is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the path is another one once the secret is in it")]
    Path,
    #[error("the header cannot hold the secret")]
    Header,
    #[error(transparent)]
    Overgrown(#[from] Overgrown),
}

impl From<InvalidUri> for Refused {
    fn from(_: InvalidUri) -> Self {
        Self::Path
    }
}

impl Armed {
    pub(super) fn new(plan: &Plan, secrets: &[Arc<SecretString>]) -> Result<Self, Unfit> {
        let secret = |at: usize| secrets.get(at).map_or("", |secret| secret.expose_secret());
        let mut injected = Vec::with_capacity(plan.injections.len());
        for injection in &plan.injections {
            let value = injection.scheme.render(secret(injection.secret));
            HeaderValue::from_bytes(&value).map_err(|_| Unfit::Header)?;
            injected.push((injection.header.clone(), value));
        }
        let of = |place: Place, encoding: Encoding| {
            let stands =
                plan.substitutions.iter().filter(move |stand| stand.places.contains(&place));
            Patterns::new(stands.map(|stand| {
                let find = Zeroizing::new(stand.placeholder.as_bytes().to_vec());
                (find, encoding.apply(secret(stand.secret)))
            }))
        };
        let unfit = plan.substitutions.iter().any(|stand| {
            stand.places.contains(&Place::Header)
                && HeaderValue::from_str(secret(stand.secret)).is_err()
        });
        if unfit {
            return Err(Unfit::Header);
        }
        Ok(Self {
            in_path: of(Place::Path, Encoding::Percent),
            in_query: of(Place::Query, Encoding::Percent),
            in_headers: of(Place::Header, Encoding::Raw),
            in_json: Arc::new(of(Place::Body, Encoding::Json)),
            in_form: Arc::new(of(Place::Body, Encoding::Form)),
            in_text: Arc::new(of(Place::Body, Encoding::Raw)),
            redactor: Arc::new(Redactor::new(
                secrets.iter().map(|secret| secret.expose_secret()),
                plan,
            )),
            injected,
        })
    }

    /// Puts the secrets into a request: placeholders in path, query and headers first, then whole
    /// headers. An error means that the request must not be sent.
    ///
    /// If the body must change as well, all of it goes through the answer. The length that it was
    /// announced with is no longer among the headers then: send it in chunks, or read it whole if it
    /// is short, as [`Rewrite::WHOLE`] says, and set the new length.
    pub fn request(&self, parts: &mut Parts) -> Result<Option<Rewrite>, Refused> {
        let mut room = ROOM_IN_HEAD;
        parts.uri = self.target(&parts.uri, &mut room)?;
        if !self.in_headers.is_empty() {
            for (name, value) in &mut parts.headers {
                if !is_untouched(name) {
                    substitute(&self.in_headers, value, &mut room)?;
                }
            }
        }
        for (name, value) in &self.injected {
            let mut value = HeaderValue::from_bytes(value).map_err(|_| Refused::Header)?;
            value.set_sensitive(true);
            // Takes the place of every header of that name.
            parts.headers.insert(name, value);
        }
        ask_plainly(&mut parts.headers);
        Ok(self.body(&mut parts.headers))
    }

    pub fn redactor(&self) -> &Arc<Redactor> {
        &self.redactor
    }

    fn target(&self, uri: &Uri, room: &mut usize) -> Result<Uri, Refused> {
        let (path, query) = (uri.path(), uri.query());
        let new_path = self.in_path.replace(path.as_bytes(), room)?;
        let new_query =
            query.map(|query| self.in_query.replace(query.as_bytes(), room)).transpose()?;
        let is_owned = |text: &Cow<'_, [u8]>| matches!(text, Cow::Owned(_));
        if !is_owned(&new_path) && !new_query.as_ref().is_some_and(is_owned) {
            return Ok(uri.clone());
        }
        if is_owned(&new_path) {
            let text = std::str::from_utf8(&new_path).map_err(|_| Refused::Path)?;
            if path::is_doubtful(text) || path::slashed(text).is_some() {
                return Err(Refused::Path);
            }
        }
        let mut target = new_path.into_owned();
        if let Some(query) = new_query {
            target.push(b'?');
            target.extend_from_slice(&query);
        }
        let mut whole = uri.clone().into_parts();
        whole.path_and_query = Some(PathAndQuery::try_from(target)?);
        Uri::from_parts(whole).map_err(|_| Refused::Path)
    }

    fn body(&self, headers: &mut HeaderMap) -> Option<Rewrite> {
        let patterns = match kind(headers) {
            Kind::Json => &self.in_json,
            Kind::Form => &self.in_form,
            Kind::Text => &self.in_text,
            Kind::Closed => return None,
        };
        if patterns.is_empty() || length(headers) == Some(0) {
            return None;
        }
        let length = take_length(headers);
        Some(Rewrite::new(Arc::clone(patterns), ROOM_IN_BODY, length))
    }
}

impl AuthScheme {
    pub(super) fn render(self, secret: &str) -> Wiped {
        let prefix = match self {
            Self::Bearer => "Bearer ",
            Self::Basic => "Basic ",
            Self::None => "",
        };
        let mut value = Vec::with_capacity(prefix.len() + secret.len());
        value.extend_from_slice(prefix.as_bytes());
        value.extend_from_slice(secret.as_bytes());
        Zeroizing::new(value)
    }

    /// User and password, which whoever gets them can send back as they are.
    pub(super) fn unpacked(self, secret: &str) -> Option<Wiped> {
        if self != Self::Basic {
            return None;
        }
        BASE64.decode(secret).ok().map(Zeroizing::new)
    }
}

/// What a body is, as far as it matters for putting text into it.
enum Kind {
    Json,
    Form,
    Text,
    /// Text cannot be put into it, or would break it: compressed, or in parts with lengths of their
    /// own.
    Closed,
}

fn kind(headers: &HeaderMap) -> Kind {
    if !is_plain(headers) {
        return Kind::Closed;
    }
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let given = given.unwrap_or_default().split(';').next().unwrap_or_default();
    let essence = given.trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Kind::Json,
        "application/x-www-form-urlencoded" => Kind::Form,
        other if other.ends_with("+json") => Kind::Json,
        other if other.starts_with("multipart/") || other.starts_with("application/grpc") => {
            Kind::Closed
        }
        _ => Kind::Text,
    }
}

/// Nothing is found in an answer that is compressed, for whoever asks or on the way.
pub(crate) fn ask_plainly(headers: &mut HeaderMap) {
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let said = headers.get_all(header::TE).iter().filter_map(|value| value.to_str().ok());
    let mut codings = said.flat_map(|value| value.split(','));
    if codings.any(|coding| coding.trim().eq_ignore_ascii_case("trailers")) {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    } else {
        headers.remove(header::TE);
    }
}

/// Whether a body is as its sender wrote it.
fn is_plain(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .all(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"))
}

pub(super) fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Takes away the length that no longer holds.
pub(super) fn take_length(headers: &mut HeaderMap) -> Option<u64> {
    let length = length(headers);
    headers.remove(header::CONTENT_LENGTH);
    length
}

fn is_untouched(name: &HeaderName) -> bool {
    UNTOUCHED.contains(&name.as_str())
        || name.as_str().starts_with("proxy-auth")
        || name.as_str().starts_with("x-forwarded-")
}

fn substitute(
    patterns: &Patterns,
    value: &mut HeaderValue,
    room: &mut usize,
) -> Result<(), Refused> {
    if let Cow::Owned(new) = patterns.replace(value.as_bytes(), room)? {
        *value = HeaderValue::from_bytes(&new).map_err(|_| Refused::Header)?;
        value.set_sensitive(true);
    }
    Ok(())
}

impl fmt::Debug for Armed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.injected.iter().map(|(name, _)| name).collect();
        f.debug_struct("Armed").field("injected", &headers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
