//! What registries let us in with: passwords, and tokens that are kept while they are good.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Method, Uri, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, zeroize::Zeroizing};
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    Origin, RegistryError, Scheme,
    challenge::Challenge,
    keyring::Credential,
    tries::{is_transient, retry_after},
    wire::{Call, Wire, whole},
};

/// The most that are kept.
const MOST: usize = 512;
/// The longest answer with a token, and the longest token.
const LONGEST_ANSWER: usize = 128 << 10;
const LONGEST_TOKEN: usize = 32 << 10;
/// How long a token is good that does not say so, and the longest that one is believed to be.
const USUAL: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_hours(1);
/// A token that ends this soon may end on its way.
const SLACK: Duration = Duration::from_secs(5);

/// What one may do with a repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope(String);

impl Scope {
    pub(crate) fn pull(repository: &str) -> Self {
        Self(format!("repository:{repository}:pull"))
    }

    pub(crate) fn push(repository: &str) -> Self {
        Self(format!("repository:{repository}:pull,push"))
    }
}

/// Whom a pass is for, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Purpose {
    pub(crate) origin: Origin,
    pub(crate) scope: Scope,
    /// A repository that is read from at the same time.
    pub(crate) beside: Option<Scope>,
    /// What is kept instead of who asks.
    who: [u8; 32],
}

#[derive(Clone)]
struct Pass {
    header: HeaderValue,
    /// One without an end is a password.
    until: Option<Instant>,
}

pub(crate) struct Passes {
    kept: Mutex<HashMap<Purpose, Pass>>,
    salt: [u8; 32],
}

impl fmt::Debug for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passes")
    }
}

impl Passes {
    pub(crate) fn new() -> Result<Self, RegistryError> {
        let mut salt = [0; 32];
        getrandom::fill(&mut salt)
            .map_err(|error| RegistryError::Settings(format!("there is no randomness: {error}")))?;
        Ok(Self { kept: Mutex::default(), salt })
    }

    pub(crate) fn purpose(
        &self,
        origin: &Origin,
        scope: Scope,
        beside: Option<Scope>,
        credential: Option<&Credential>,
    ) -> Purpose {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(&self.salt);
        match credential {
            None => hash.update(b"0"),
            Some(Credential::Basic(login)) => {
                hash.update(b"1");
                hash.update(&login.username.len().to_le_bytes());
                hash.update(login.username.as_bytes());
                hash.update(login.password.expose_secret().as_bytes());
            }
            Some(Credential::Identity(token)) => {
                hash.update(b"2");
                hash.update(token.expose_secret().as_bytes());
            }
        }
        let mut who = [0; 32];
        for (to, from) in who.iter_mut().zip(hash.finish().as_ref()) {
            *to = *from;
        }
        Purpose { origin: origin.clone(), scope, beside, who }
    }

    /// What lets us in, if that is known.
    pub(crate) fn find(&self, purpose: &Purpose) -> Option<HeaderValue> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let pass = kept.get(purpose)?;
        if pass.until.is_some_and(|until| until <= Instant::now()) {
            kept.remove(purpose);
            return None;
        }
        Some(pass.header.clone())
    }

    fn keep(&self, purpose: &Purpose, pass: Pass) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST {
            let now = Instant::now();
            kept.retain(|_, pass| pass.until.is_some_and(|until| until > now));
        }
        if kept.len() >= MOST {
            kept.clear();
        }
        kept.insert(purpose.clone(), pass);
    }

    pub(crate) fn forget(&self, purpose: &Purpose) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(purpose);
    }

    /// Meets a challenge; `None` if we have nothing to meet it with.
    pub(crate) async fn obtain(
        &self,
        wire: &Wire,
        purpose: &Purpose,
        challenge: &Challenge,
        credential: Option<&Credential>,
    ) -> Result<Option<HeaderValue>, RegistryError> {
        let pass = match (challenge, credential) {
            (Challenge::Basic, Some(Credential::Basic(login))) => {
                let header = basic(&login.username, login.password.expose_secret());
                Pass { header: header.ok_or_else(|| unusable(&purpose.origin))?, until: None }
            }
            (Challenge::Basic, None | Some(Credential::Identity(_))) => return Ok(None),
            (Challenge::Bearer { realm, service, .. }, _) => {
                let asking = Asking { wire, purpose, realm, service: service.as_deref() };
                match asking.token(credential).await? {
                    Some(pass) => pass,
                    None => return Ok(None),
                }
            }
        };
        let header = pass.header.clone();
        self.keep(purpose, pass);
        Ok(Some(header))
    }
}

fn unusable(origin: &Origin) -> RegistryError {
    RegistryError::Settings(format!("the login for {origin} cannot be sent"))
}

fn basic(username: &str, password: &str) -> Option<HeaderValue> {
    let plain = Zeroizing::new(format!("{username}:{password}"));
    secret("Basic", &Zeroizing::new(STANDARD.encode(plain.as_bytes())))
}

/// A header that is not shown.
fn secret(scheme: &str, value: &str) -> Option<HeaderValue> {
    let text = Zeroizing::new(format!("{scheme} {value}"));
    let mut header = HeaderValue::from_str(&text).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// A question for a token.
struct Asking<'a> {
    wire: &'a Wire,
    purpose: &'a Purpose,
    realm: &'a str,
    service: Option<&'a str>,
}

#[derive(Deserialize)]
struct Granted<'a> {
    #[serde(default, borrow)]
    token: Option<&'a str>,
    #[serde(default, borrow)]
    access_token: Option<&'a str>,
    #[serde(default)]
    expires_in: Option<f64>,
}

impl Asking<'_> {
    async fn token(&self, credential: Option<&Credential>) -> Result<Option<Pass>, RegistryError> {
        let realm = self.realm()?;
        let host = Origin::of(&realm).map_or_else(String::new, |origin| origin.to_string());
        let answer = match credential {
            Some(Credential::Identity(token)) => {
                let secret = token.expose_secret();
                let form = [("grant_type", "refresh_token"), ("refresh_token", secret)];
                let form = Zeroizing::new(self.query(&form));
                let call = Call::new(Method::POST, realm).header(
                    header::CONTENT_TYPE,
                    HeaderValue::from_static("application/x-www-form-urlencoded"),
                );
                let body = whole(Bytes::copy_from_slice(form.as_bytes()));
                self.wire.send(&call, None, body).await?
            }
            Some(Credential::Basic(login)) => {
                let header = basic(&login.username, login.password.expose_secret());
                let header = header.ok_or_else(|| unusable(&self.purpose.origin))?;
                let call = self.get(&realm, &[("account", &login.username)])?;
                self.wire.fetch(&call, Some(&header)).await?
            }
            None => self.wire.fetch(&self.get(&realm, &[])?, None).await?,
        };
        let status = answer.status();
        if [400, 401, 403, 404].contains(&status.as_u16()) {
            return Ok(None);
        }
        if !status.is_success() {
            let retry_after = retry_after(answer.headers());
            let said = self.wire.explanation(&host, answer).await;
            let doing = "give out tokens".to_owned();
            return Err(if is_transient(status) {
                RegistryError::Unavailable { host, doing, status, said, retry_after }
            } else {
                RegistryError::Refused { host, doing, status, said }
            });
        }
        let body = self.wire.collect(&host, answer.into_body(), LONGEST_ANSWER).await?;
        read(&body).map(Some).ok_or_else(|| RegistryError::corrupt(host, "its token is none"))
    }

    /// Where tokens are, which the registry says. A login that is sent there goes over TLS, unless
    /// the operator has agreed to speak with the registry without.
    fn realm(&self) -> Result<Uri, RegistryError> {
        let uri = self.realm.parse::<Uri>().ok().filter(|_| self.realm.len() <= 2048);
        let uri = uri.filter(|uri| {
            let to = Origin::of(uri).map(|origin| origin.scheme());
            to == Some(Scheme::Https)
                || (to.is_some() && self.purpose.origin.scheme() == Scheme::Http)
        });
        uri.ok_or_else(|| {
            RegistryError::corrupt(&self.purpose.origin, "its tokens are where we do not go")
        })
    }

    fn get(&self, realm: &Uri, further: &[(&str, &str)]) -> Result<Call, RegistryError> {
        let mark = if realm.query().is_some() { '&' } else { '?' };
        let uri = format!("{realm}{mark}{}", self.query(further)).parse();
        let uri = uri.map_err(|_| {
            RegistryError::corrupt(&self.purpose.origin, "its tokens are where we do not go")
        })?;
        Ok(Call::new(Method::GET, uri))
    }

    fn query(&self, further: &[(&str, &str)]) -> String {
        let Purpose { scope, beside, .. } = self.purpose;
        let scopes = [Some(scope), beside.as_ref()].into_iter().flatten();
        let mut pairs = vec![("client_id", "opensandbox")];
        pairs.extend(self.service.map(|service| ("service", service)));
        pairs.extend(scopes.map(|scope| ("scope", scope.0.as_str())));
        pairs.extend_from_slice(further);
        let mut query = String::new();
        for (name, value) in pairs {
            if !query.is_empty() {
                query.push('&');
            }
            query.push_str(name);
            query.push('=');
            query.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
        query
    }
}

fn read(body: &[u8]) -> Option<Pass> {
    let answer: Granted<'_> = serde_json::from_slice(body).ok()?;
    let token =
        [answer.token, answer.access_token].into_iter().flatten().find(|it| !it.is_empty())?;
    if token.len() > LONGEST_TOKEN {
        return None;
    }
    let good = answer.expires_in.and_then(|it| Duration::try_from_secs_f64(it).ok());
    let good = good.unwrap_or(USUAL).min(LONGEST);
    let header = secret("Bearer", token)?;
    Some(Pass { header, until: Some(Instant::now() + good.saturating_sub(SLACK)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Login;

    fn login(username: &str, password: &str) -> Credential {
        Credential::Basic(Login { username: username.to_owned(), password: password.into() })
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_kept_while_they_are_good_and_for_those_who_got_them() {
        let passes = Passes::new().unwrap();
        let origin = Origin::parse("r.test").unwrap();
        let purpose = |scope, who: Option<&Credential>| passes.purpose(&origin, scope, None, who);
        let mine = purpose(Scope::pull("a"), Some(&login("me", "pw")));
        passes.keep(&mine, read(br#"{"token":"t","expires_in":300}"#).unwrap());
        assert_eq!(passes.find(&mine).unwrap(), "Bearer t");
        assert!(passes.find(&mine).unwrap().is_sensitive());
        for other in [
            purpose(Scope::pull("a"), None),
            purpose(Scope::pull("a"), Some(&login("me", "px"))),
            purpose(Scope::pull("a"), Some(&login("mep", "w"))),
            purpose(Scope::pull("b"), Some(&login("me", "pw"))),
            purpose(Scope::push("a"), Some(&login("me", "pw"))),
        ] {
            assert_eq!(passes.find(&other), None);
        }
        tokio::time::advance(Duration::from_secs(294)).await;
        assert!(passes.find(&mine).is_some());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(passes.find(&mine), None);
    }

    #[tokio::test]
    async fn not_more_are_kept_than_there_is_room_for() {
        let passes = Passes::new().unwrap();
        let origin = Origin::parse("r.test").unwrap();
        for number in 0..2 * MOST {
            let scope = Scope::pull(&number.to_string());
            let purpose = passes.purpose(&origin, scope, None, None);
            passes.keep(&purpose, read(br#"{"access_token":"t"}"#).unwrap());
            assert!(passes.find(&purpose).is_some());
        }
        assert!(passes.kept.lock().unwrap().len() <= MOST);
    }

    #[tokio::test]
    async fn what_is_no_token_is_not_taken_for_one() {
        let long = format!(r#"{{"token":"{}"}}"#, "t".repeat(LONGEST_TOKEN + 1));
        for body in
            ["", "{}", r#"{"token":""}"#, r#"{"token":"a\r\nb: c"}"#, r#"{"token":1}"#, &long]
        {
            assert!(read(body.as_bytes()).is_none(), "{body}");
        }
    }
}
