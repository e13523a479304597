//! Secrets from a store that speaks the HTTP API of HashiCorp Vault.

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use osb_sys::fs;
use secrecy::{
    ExposeSecret, SecretString,
    zeroize::{Zeroize, Zeroizing},
};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

/// How long the store may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer.
const LARGEST: usize = 256 << 10;
/// The most answers that are remembered.
const MOST: usize = 256;

/// A store on this host: an agent that speaks to the real one, or the real one itself.
pub struct Remote {
    address: Address,
    /// The operator's token for the store, read again for every request: agents renew it.
    token_file: PathBuf,
    /// What may be read begins with one of these.
    paths: Vec<String>,
    /// How long an answer holds.
    fresh: Duration,
    answers: Mutex<HashMap<String, Answer>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

struct Answer {
    at: Instant,
    fields: Arc<HashMap<String, SecretString>>,
}

/// An address that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error("{0:?} is neither http://host:port nor unix:/path")]
    Form(String),
    #[error(
        "{0:?} is not plain HTTP on this host: run an agent of the store on 127.0.0.1 or on a \
         unix socket, and let it speak to the store over TLS"
    )]
    Elsewhere(String),
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
    #[error("the answer of the store has no such field")]
    NoField,
}

impl Remote {
    /// A store at `http://127.0.0.1:8200` or `unix:/run/vault.sock`, of which everything below
    /// `paths` may be read.
    pub fn new(
        address: &str,
        token_file: PathBuf,
        paths: Vec<String>,
        fresh: Duration,
    ) -> Result<Self, BadAddress> {
        let address = Address::parse(address)?;
        Ok(Self { address, token_file, paths, fresh, answers: Mutex::default() })
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
    ) -> Result<Zeroizing<String>, RemoteError> {
        let fields = match self.remembered(path) {
            Some(fields) => fields,
            None => self.fetch(path).await?,
        };
        let secret = fields.get(field).ok_or(RemoteError::NoField)?;
        Ok(Zeroizing::new(secret.expose_secret().to_owned()))
    }

    fn remembered(&self, path: &str) -> Option<Arc<HashMap<String, SecretString>>> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answers.get(path).filter(|answer| answer.at.elapsed() < self.fresh)?;
        Some(Arc::clone(&answer.fields))
    }

    async fn fetch(&self, path: &str) -> Result<Arc<HashMap<String, SecretString>>, RemoteError> {
        let at = Instant::now();
        let body = tokio::time::timeout(PATIENCE, self.ask(path))
            .await
            .map_err(|_| RemoteError::Late)??;
        let fields = Arc::new(fields(&body).ok_or(RemoteError::NoField)?);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|_, answer| answer.at.elapsed() < self.fresh);
        if answers.len() < MOST {
            answers.insert(path.to_owned(), Answer { at, fields: Arc::clone(&fields) });
        }
        Ok(fields)
    }

    async fn ask(&self, path: &str) -> Result<Zeroizing<Vec<u8>>, RemoteError> {
        let token = Zeroizing::new(fs::read_to_string(&self.token_file)?);
        let mut token = HeaderValue::from_str(token.trim()).map_err(|_| RemoteError::BadToken)?;
        token.set_sensitive(true);
        let host = match &self.address {
            Address::Tcp { host, port } => format!("{host}:{port}"),
            Address::Unix(_) => "localhost".to_owned(),
        };
        let request = Request::get(format!("/v1/{path}"))
            .header(header::HOST, host)
            .header("x-vault-token", token)
            .header("x-vault-request", "true")
            .body(Empty::<Bytes>::new())
            .map_err(|error| RemoteError::Broken(error.into()))?;
        match &self.address {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                exchange(stream.map_err(RemoteError::Unreachable)?, request).await
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                exchange(stream.map_err(RemoteError::Unreachable)?, request).await
            }
        }
    }
}

/// One request on a connection of its own.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
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

/// The fields of a secret, in both forms: `data` of the second is one level deeper.
fn fields(body: &[u8]) -> Option<HashMap<String, SecretString>> {
    let mut answer: Value = serde_json::from_slice(body).ok()?;
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
    Some(fields.into_iter().filter_map(text).collect())
}

impl Address {
    fn parse(text: &str) -> Result<Self, BadAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
            let form = || BadAddress::Form(text.to_owned());
            return path.is_absolute().then_some(Self::Unix(path)).ok_or_else(form);
        }
        let form = || BadAddress::Form(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| form())?;
        let host = uri.host().ok_or_else(form)?.trim_matches(['[', ']']).to_owned();
        if uri.scheme_str() == Some("https") {
            return Err(BadAddress::Elsewhere(text.to_owned()));
        }
        if uri.scheme_str() != Some("http") || !matches!(uri.path(), "" | "/") {
            return Err(form());
        }
        let is_local = host == "localhost"
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if !is_local {
            return Err(BadAddress::Elsewhere(text.to_owned()));
        }
        Ok(Self::Tcp { host, port: uri.port_u16().unwrap_or(8200) })
    }
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
