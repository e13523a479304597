//! Secrets from a store that speaks the HTTP API of HashiCorp Vault.

mod address;

use std::{
    collections::HashMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use osb_sys::fs;
use secrecy::{
    ExposeSecret, SecretString,
    zeroize::{Zeroize, Zeroizing},
};
use serde_json::Value;
use tokio::{sync::Mutex as Turn, task::spawn_blocking};

pub use self::address::BadAddress;
use self::address::{Address, Stream};
use crate::ExtraCa;

/// How long the store may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer.
const LARGEST: usize = 256 << 10;
/// The most answers that are remembered.
const MOST: usize = 256;

/// A store, or an agent on this host that speaks to it.
pub struct Remote {
    address: Address,
    token: Token,
    namespace: Option<HeaderValue>,
    /// What may be read begins with one of these.
    paths: Vec<String>,
    /// How long an answer holds that does not say.
    fresh: Duration,
    answers: Mutex<HashMap<String, Arc<Turn<Option<Answer>>>>>,
}

/// The operator's token for the store.
#[derive(Debug)]
pub enum Token {
    /// Read again for every request: agents renew it.
    File(PathBuf),
    Given(SecretString),
}

/// What the store said about a path.
struct Answer {
    /// When it was asked.
    began: Instant,
    /// Until when the answer holds, for those who come after that.
    until: Instant,
    fields: Result<HashMap<String, SecretString>, Arc<RemoteError>>,
}

impl Answer {
    fn field(&self, name: &str) -> Result<Zeroizing<String>, Arc<RemoteError>> {
        let fields = self.fields.as_ref().map_err(Arc::clone)?;
        let secret = fields.get(name).ok_or(RemoteError::NoField)?;
        Ok(Zeroizing::new(secret.expose_secret().to_owned()))
    }
}

/// Why the store gave no secret.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("cannot read the token for the store")]
    Token(#[from] fs::PathError),
    #[error("the token for the store cannot stand in a header")]
    BadToken,
    #[error("cannot reach the store")]
    Unreachable(#[source] std::io::Error),
    #[error("the store broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the store did not answer in time")]
    Late,
    #[error("the store answered {0}")]
    Status(StatusCode),
    #[error("the answer of the store cannot be understood")]
    Nonsense,
    #[error("the answer of the store has no such field")]
    NoField,
}

impl Remote {
    /// A store of which everything below `paths` may be read. If it is not on this host, somebody
    /// whom the host trusts, or `extra`, must vouch for it.
    pub fn new(
        address: &str,
        token: Token,
        paths: Vec<String>,
        extra: Option<&ExtraCa>,
    ) -> Result<Self, BadAddress> {
        Ok(Self {
            address: Address::parse(address, extra)?,
            token,
            namespace: None,
            paths,
            fresh: Duration::ZERO,
            answers: Mutex::default(),
        })
    }

    /// Reads in a namespace of the store.
    pub fn within(self, namespace: Option<&str>) -> Result<Self, BadAddress> {
        let header = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
            let value = HeaderValue::from_str(text).ok().filter(|_| plain);
            value.ok_or_else(|| BadAddress::Namespace(text.to_owned()))
        };
        Ok(Self { namespace: namespace.map(header).transpose()?, ..self })
    }

    /// Remembers answers for so long, if they do not end before.
    #[must_use]
    pub fn remembering(self, fresh: Duration) -> Self {
        Self { fresh, ..self }
    }

    /// Whether this may be read at all.
    pub(super) fn check(&self, path: &str) -> Result<(), String> {
        let is_plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
            && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !is_plain {
            return Err("a path in the store is plain, as in secret/data/github".to_owned());
        }
        let below = |allowed: &String| {
            let allowed = allowed.trim_matches('/');
            path.strip_prefix(allowed)
                .is_some_and(|rest| allowed.is_empty() || rest.is_empty() || rest.starts_with('/'))
        };
        let is_allowed = self.paths.iter().any(below);
        let refused = || format!("the operator of this server does not offer {path:?}");
        if is_allowed { Ok(()) } else { Err(refused()) }
    }

    pub(super) async fn read(
        &self,
        path: &str,
        field: &str,
    ) -> Result<Zeroizing<String>, Arc<RemoteError>> {
        let came = Instant::now();
        // Those who need the same at the same time ask for it once. Whatever the store says to one who
        // began to ask after another came, it says to both, even if it is not to be remembered: no
        // one waits for longer than two answers, however many others do.
        let read = async {
            let turn = self.turn(path);
            let mut known = turn.lock().await;
            let holds = |answer: &&Answer| answer.began >= came || answer.until > Instant::now();
            if let Some(answer) = known.as_ref().filter(holds) {
                return answer.field(field);
            }
            // What no longer holds is wiped, whatever comes.
            *known = None;
            known.insert(self.fetch(path).await).field(field)
        };
        tokio::time::timeout(PATIENCE, read).await.map_err(|_| RemoteError::Late)?
    }

    fn turn(&self, path: &str) -> Arc<Turn<Option<Answer>>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = answers.get(path) {
            return Arc::clone(known);
        }
        let now = Instant::now();
        // Those in use have somebody else who holds them.
        answers.retain(|_, turn| match turn.try_lock() {
            Ok(known) => known.as_ref().is_some_and(|answer| answer.until > now),
            Err(_) => true,
        });
        let turn = Arc::default();
        if answers.len() < MOST {
            answers.insert(path.to_owned(), Arc::clone(&turn));
        }
        turn
    }

    async fn fetch(&self, path: &str) -> Answer {
        let began = Instant::now();
        let body = self.ask(path).await;
        match body.and_then(|body| understand(&body).ok_or(RemoteError::Nonsense)) {
            Ok(Understood { fields, lease }) => {
                let holds = lease.map_or(self.fresh, |lease| lease.min(self.fresh));
                Answer { began, until: began + holds, fields: Ok(fields) }
            }
            Err(error) => Answer { began, until: began, fields: Err(Arc::new(error)) },
        }
    }

    async fn ask(&self, path: &str) -> Result<Zeroizing<Vec<u8>>, RemoteError> {
        let token = match &self.token {
            Token::File(path) => {
                let path = path.clone();
                let read = spawn_blocking(move || fs::read_to_string(path).map(Zeroizing::new));
                read.await.map_err(|error| RemoteError::Broken(error.into()))??
            }
            Token::Given(token) => Zeroizing::new(token.expose_secret().to_owned()),
        };
        let mut token = HeaderValue::from_str(token.trim()).map_err(|_| RemoteError::BadToken)?;
        token.set_sensitive(true);
        let mut request = Request::get(format!("/v1/{path}"))
            .header(header::HOST, self.address.authority())
            .header("x-vault-token", token)
            .header("x-vault-request", "true");
        if let Some(namespace) = &self.namespace {
            request = request.header("x-vault-namespace", namespace);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|error| RemoteError::Broken(error.into()))?;
        let stream = self.address.connect().await.map_err(RemoteError::Unreachable)?;
        exchange(stream, request).await
    }
}

/// One request on a connection of its own.
async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Empty<Bytes>>,
) -> Result<Zeroizing<Vec<u8>>, RemoteError> {
    let broken = |error: hyper::Error| RemoteError::Broken(error.into());
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        if response.status() != StatusCode::OK {
            return Err(RemoteError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        Ok(Zeroizing::new(body.map_err(RemoteError::Broken)?.to_bytes().to_vec()))
    };
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // A connection that ends may have brought the whole answer.
        _ = &mut connection => answer.await,
    }
}

struct Understood {
    fields: HashMap<String, SecretString>,
    /// How long they hold, if that is said.
    lease: Option<Duration>,
}

/// The fields of a secret, in both forms: `data` of the second is one level deeper.
fn understand(body: &[u8]) -> Option<Understood> {
    let mut answer: Value = serde_json::from_slice(body).ok()?;
    let lease = answer.get("lease_duration").and_then(Value::as_u64).filter(|&lease| lease > 0);
    let mut data = answer.get_mut("data")?.take();
    let is_second = data.get("metadata").is_some_and(Value::is_object);
    if is_second && let Some(inner) = data.get_mut("data") {
        data = inner.take();
    }
    let Value::Object(fields) = data else { return None };
    let text = |(name, value)| match value {
        Value::String(mut text) => {
            let secret = SecretString::from(text.as_str());
            text.zeroize();
            Some((name, secret))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    };
    let fields = fields.into_iter().filter_map(text).collect();
    // One that is nearly over would end on the way.
    let lease = lease.map(|lease| Duration::from_secs(lease - lease / 10));
    Some(Understood { fields, lease })
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("address", &self.address)
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
