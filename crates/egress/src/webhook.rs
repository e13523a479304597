//! Telling somebody outside of what was denied.

use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::{HeaderValue, Request, StatusCode, Uri, header, uri::Scheme};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use osb_api::SandboxId;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::broadcast::{self, error::RecvError},
    time::{sleep, timeout},
};
use tokio_rustls::TlsConnector;

use crate::{By, Decision, Verdict, intercept::Interceptor};

/// How many of each sandbox wait to be told. Of more nobody hears.
const WAITING: usize = 32;
/// How long one telling may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long we wait before each further try, while others wait behind.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// Whom to tell. The address may hold a secret, and is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    host: String,
    port: u16,
    is_tls: bool,
    target: String,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Webhook({}:{})", self.host, self.port)
    }
}

impl Webhook {
    /// `https://host/path`, or `http://`.
    pub fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let scheme = uri.scheme()?;
        let is_tls = *scheme == Scheme::HTTPS;
        let is_known = is_tls || *scheme == Scheme::HTTP;
        let authority = uri.authority().filter(|it| is_known && !it.as_str().contains('@'))?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        (!host.is_empty()).then_some(Self { host, port, is_tls, target })
    }

    /// Tells of every denial, until there are no more.
    pub(crate) async fn run(
        self,
        mut decisions: broadcast::Receiver<Arc<Decision>>,
        interceptor: Interceptor,
        told: Arc<Told>,
    ) {
        let mut waiting = Waiting::default();
        let mut telling = FuturesUnordered::new();
        let mut is_heard = true;
        loop {
            // One after the other.
            if telling.is_empty() {
                telling.extend(waiting.next().map(|next| self.deliver(next, &interceptor)));
            }
            tokio::select! {
                decision = decisions.recv() => {
                    let lost = match decision {
                        Ok(decision) if decision.ruling.verdict == Verdict::Allow => 0,
                        Ok(decision) => u64::from(!waiting.add(decision)),
                        Err(RecvError::Lagged(missed)) => missed,
                        Err(RecvError::Closed) => return,
                    };
                    told.dropped.fetch_add(lost, Relaxed);
                }
                Some(delivered) = telling.next() => {
                    let counter = if delivered.is_ok() { &told.delivered } else { &told.failed };
                    counter.fetch_add(1, Relaxed);
                    match &delivered {
                        Err(error) if is_heard => {
                            tracing::warn!(webhook = ?self, error, "nobody can be told of denials");
                        }
                        Ok(()) if !is_heard => {
                            tracing::warn!(webhook = ?self, "denials can be told again");
                        }
                        Ok(()) | Err(_) => {}
                    }
                    is_heard = delivered.is_ok();
                }
            }
        }
    }

    async fn deliver(
        &self,
        decision: Arc<Decision>,
        interceptor: &Interceptor,
    ) -> Result<(), String> {
        let body = Bytes::from(message(&decision).to_string());
        let mut pauses = PAUSES.into_iter();
        loop {
            let answer = timeout(PATIENCE, self.post(body.clone(), interceptor)).await;
            let (again, why) = match answer {
                Ok(Ok(status)) if status.is_success() => return Ok(()),
                Ok(Ok(status)) => (status.is_server_error(), format!("it answered {status}")),
                Ok(Err(error)) => (true, error.to_string()),
                Err(late) => (true, late.to_string()),
            };
            match pauses.next() {
                Some(pause) if again => sleep(pause).await,
                _ => return Err(why),
            }
        }
    }

    async fn post(&self, body: Bytes, interceptor: &Interceptor) -> io::Result<StatusCode> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        if !self.is_tls {
            return self.send(stream, body).await;
        }
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(interceptor.trusted().await?).connect(name, stream).await?;
        self.send(stream, body).await
    }

    async fn send(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        body: Bytes,
    ) -> io::Result<StatusCode> {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let request = Request::post(self.target.as_str())
            .header(header::HOST, format!("{host}:{}", self.port))
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(header::CONNECTION, HeaderValue::from_static("close"))
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let answer = async { sender.send_request(request).await.map(|answer| answer.status()) };
        tokio::pin!(answer, connection);
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer,
            // A connection that ends may have brought the whole answer.
            _ = &mut connection => answer.await,
        };
        answer.map_err(io::Error::other)
    }
}

/// Denials of which somebody is yet to be told. Sandboxes take turns: however much one is denied, the
/// others are heard of.
#[derive(Default)]
struct Waiting {
    each: HashMap<SandboxId, VecDeque<Arc<Decision>>>,
    turns: VecDeque<SandboxId>,
}

impl Waiting {
    /// Whether there was room.
    fn add(&mut self, decision: Arc<Decision>) -> bool {
        let sandbox = decision.sandbox;
        let own = self.each.entry(sandbox).or_default();
        if own.len() >= WAITING {
            return false;
        }
        if own.is_empty() {
            self.turns.push_back(sandbox);
        }
        own.push_back(decision);
        true
    }

    fn next(&mut self) -> Option<Arc<Decision>> {
        let sandbox = self.turns.pop_front()?;
        let own = self.each.get_mut(&sandbox)?;
        let next = own.pop_front();
        if own.is_empty() {
            self.each.remove(&sandbox);
        } else {
            self.turns.push_back(sandbox);
        }
        next
    }
}

/// The fields that other servers send, and what more is known.
fn message(decision: &Decision) -> Value {
    let Decision { what, ruling, .. } = decision;
    let address = what.address.map(|address| address.to_string());
    let hostname = what.name.as_ref().map(ToString::to_string).or_else(|| address.clone());
    let rule = match &ruling.by {
        By::Rule(rule) | By::Operator(rule) => Some(&**rule),
        By::Default | By::Guard(_) | By::Mismatch | By::Limit | By::Binding(_) => None,
    };
    let mut message = json!({
        "hostname": hostname,
        "timestamp": decision.at.to_string(),
        "source": "opensandbox-egress",
        "sandboxId": decision.sandbox.to_string(),
        "protocol": what.protocol.as_str(),
        "port": what.port,
        "reason": ruling.by.as_str(),
        "times": decision.times,
    });
    let more = [
        ("address", address.as_deref()),
        ("rule", rule),
        ("method", what.request.as_ref().map(|asked| &*asked.method)),
        ("path", what.request.as_ref().map(|asked| &*asked.path)),
    ];
    if let Some(message) = message.as_object_mut() {
        let known = more.into_iter().filter_map(|(key, value)| Some((key, value?)));
        message.extend(known.map(|(key, value)| (key.to_owned(), value.into())));
    }
    message
}

/// What became of denials that somebody should hear of.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) delivered: AtomicU64,
    /// The other side did not take them.
    pub(crate) failed: AtomicU64,
    /// There were too many.
    pub(crate) dropped: AtomicU64,
}

#[cfg(test)]
mod tests;
