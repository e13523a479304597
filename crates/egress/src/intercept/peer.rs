//! The host's end of a connection.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    client::conn::{TrySendError, http1, http2},
    rt::Executor as _,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::{CertificateError, ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Mutex,
};
use tokio_rustls::TlsConnector;

use super::{
    Body, Connect, Host, InterceptError, Reached,
    abrupt::Abrupt,
    beside::Beside,
    leash::{Leash, Leashed},
    share::Share,
};

/// How long a host may take to prove who it is, once it has taken the connection.
const PROVES_WITHIN: Duration = Duration::from_secs(10);
/// What a host may send ahead of what the client has taken, of one answer and of all on a connection
/// that has not to share with many.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What waits of one request or answer of HTTP/2 until the other side takes it.
pub(super) const UNSENT: usize = 64 << 10;
/// The longest head of a request or an answer, and how many headers it may have.
pub(super) const HEAD_BYTES: usize = 64 << 10;
pub(super) const HEADERS: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    pub(super) fn id(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }

    pub(super) fn offered<'a>(ids: Option<impl Iterator<Item = &'a [u8]>>) -> Offer {
        let mut offer = Offer { http1: false, http2: false };
        for id in ids.into_iter().flatten() {
            offer.http1 |= id == Self::Http1.id();
            offer.http2 |= id == Self::Http2.id();
        }
        offer
    }
}

/// The protocols that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    http1: bool,
    http2: bool,
}

impl Offer {
    /// What we say to the host.
    fn ids(self) -> Vec<Vec<u8>> {
        let both = [(self.http2, Protocol::Http2), (self.http1, Protocol::Http1)];
        both.into_iter().filter(|(is, _)| *is).map(|(_, it)| it.id().to_vec()).collect()
    }

    /// What we say to the client: it hears of a protocol only if it spoke of one that we know. Some
    /// speak of HTTP/1.0 alone.
    pub(super) fn agreed(self, protocol: Protocol) -> Option<Protocol> {
        (self.http1 || self.http2).then_some(protocol)
    }

    /// What to speak with the client if there is nothing to ask the host.
    fn fallback(self) -> Protocol {
        if self.http2 && !self.http1 { Protocol::Http2 } else { Protocol::Http1 }
    }
}

/// A host, and how to reach it.
pub(super) struct Peer {
    host: Host,
    connect: Arc<dyn Connect>,
    /// How it is verified, unless it speaks plainly.
    config: Option<Arc<ClientConfig>>,
    /// Where its connections are run.
    beside: Beside,
    /// What it may send ahead on one of them.
    window: u32,
}

impl Peer {
    pub(super) fn plain(host: Host, connect: Arc<dyn Connect>, beside: Beside) -> Self {
        Self { host, connect, config: None, beside, window: CONNECTION_WINDOW }
    }

    pub(super) fn verified(
        host: Host,
        connect: Arc<dyn Connect>,
        config: Arc<ClientConfig>,
        offered: Offer,
        beside: Beside,
        share: &Share,
    ) -> Self {
        let mut config = Arc::unwrap_or_clone(config);
        config.alpn_protocols = offered.ids();
        let window = (share.requests() * STREAM_WINDOW / 8).clamp(STREAM_WINDOW, CONNECTION_WINDOW);
        Self { host, connect, config: Some(Arc::new(config)), beside, window }
    }

    async fn open(&self) -> Result<(Protocol, Line), Unopened> {
        let reached = self.connect.connect().await;
        let reached = reached.map_err(|error| (InterceptError::Unreached, error))?;
        self.speak(reached).await.map_err(|error| (InterceptError::Unverified, error))
    }

    async fn speak(&self, to: Reached) -> io::Result<(Protocol, Line)> {
        let leash = Arc::new(Leash::new());
        let stream = Leashed::new(to, Arc::clone(&leash));
        let Some(config) = &self.config else {
            return self.http1(stream, leash).await.map(|line| (Protocol::Http1, line));
        };
        let name = ServerName::try_from(self.host.name.to_string()).map_err(io::Error::other)?;
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        let stream = tokio::time::timeout(PROVES_WITHIN, handshake).await??;
        match stream.get_ref().1.alpn_protocol() {
            Some(id) if id == Protocol::Http2.id() => {
                self.http2(stream, leash).await.map(|line| (Protocol::Http2, line))
            }
            _ => self.http1(Abrupt(stream), leash).await.map(|line| (Protocol::Http1, line)),
        }
    }

    async fn http1<S>(&self, stream: S, leash: Arc<Leash>) -> io::Result<Line>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .title_case_headers(true)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        self.beside.execute(async move { ended(connection.with_upgrades().await) });
        Ok(Line { sender: Sender::One(sender), used: false, leash })
    }

    async fn http2<S>(&self, stream: S, leash: Arc<Leash>) -> io::Result<Line>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        leash.lengthen(self.window);
        let (sender, connection) = http2::Builder::new(self.beside.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(self.window)
            .max_send_buf_size(UNSENT)
            .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        self.beside.execute(async move { ended(connection.await) });
        Ok(Line { sender: Sender::Many(sender), used: false, leash })
    }
}

/// Why there is no connection to a host, and what came of it.
type Unopened = (InterceptError, io::Error);

/// Why there is no answer.
pub(super) struct Failed {
    pub(super) how: Failure,
    pub(super) message: String,
}

/// How far a request came that has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The host has seen nothing of it.
    Unsent,
    /// It may have.
    Unanswered,
}

/// A connection to a host, opened when it is needed and again when it has ended.
pub(super) struct Upstream {
    peer: Peer,
    /// All connections speak what the first one did, since the client does.
    protocol: Protocol,
    line: Mutex<Result<Option<Line>, String>>,
    /// Whether the host was there when it was needed again.
    came: Arc<AtomicBool>,
}

/// How the first attempt at a connection ended, if no later one was better.
pub(super) struct Opened {
    first: Result<(), InterceptError>,
    came: Arc<AtomicBool>,
}

impl Opened {
    pub(super) fn result(self) -> Result<(), InterceptError> {
        if self.came.load(Relaxed) { Ok(()) } else { self.first }
    }
}

impl Upstream {
    /// Connects with the first request.
    pub(super) fn later(peer: Peer) -> Self {
        let line = Mutex::new(Ok(None));
        Self { peer, protocol: Protocol::Http1, line, came: Arc::default() }
    }

    /// Connects now. If that fails, whoever sends a request is told why.
    pub(super) async fn now(peer: Peer, offered: Offer) -> (Protocol, Self, Opened) {
        let (protocol, line, first) = match peer.open().await {
            Ok((protocol, line)) => (protocol, Ok(Some(line)), Ok(())),
            Err((how, error)) => (offered.fallback(), Err(explain(&peer.host, &error)), Err(how)),
        };
        let opened = Opened { first, came: Arc::default() };
        let came = Arc::clone(&opened.came);
        (protocol, Self { peer, protocol, line: Mutex::new(line), came }, opened)
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, Failed> {
        let name = &self.peer.host.name;
        let failed = |error: hyper::Error| {
            let message = format!("{name} did not answer: {}", chain(&error));
            Failed { how: Failure::Unanswered, message }
        };
        let same = repeat(&request);
        let unreached = |message| Failed { how: Failure::Unsent, message };
        let unsent = match self.try_send(request).await.map_err(unreached)? {
            Ok(response) => return Ok(response),
            Err(unsent) => unsent,
        };
        // The host had ended the connection meanwhile, as it may. It knows of nothing, or of
        // something that it may hear twice: clients ask again in the same cases.
        let Unsent { mut error, kept } = unsent;
        let (request, how) = match error.take_message() {
            Some(request) => (request, Failure::Unsent),
            None => match same.filter(|_| kept) {
                Some(request) => (request, Failure::Unanswered),
                None => return Err(failed(error.into_error())),
            },
        };
        let again = self.try_send(request).await.map_err(|message| Failed { how, message })?;
        again.map_err(|unsent| failed(unsent.error.into_error()))
    }

    async fn try_send(
        &self,
        request: Request<Body>,
    ) -> Result<Result<Response<Body>, Unsent>, String> {
        let mut line = self.line.lock().await;
        let slot = match &mut *line {
            Ok(slot) => slot,
            Err(why) => {
                // Told once: the host may be there for the next request.
                let why = std::mem::take(why);
                *line = Ok(None);
                return Err(why);
            }
        };
        let mut kept = slot.take();
        let is_usable = match &mut kept {
            Some(line) => line.sender.is_usable().await,
            None => false,
        };
        let usable = match kept {
            Some(line) if is_usable => line,
            _ => self.reopen().await?,
        };
        let usable = slot.insert(usable);
        let kept = std::mem::replace(&mut usable.used, true);
        let leash = Arc::clone(&usable.leash);
        leash.ask();
        let sent = match &mut usable.sender {
            // One after the other, as the client sends them.
            Sender::One(sender) => sender.try_send_request(request).await,
            Sender::Many(sender) => {
                let mut sender = sender.clone();
                drop(line);
                sender.try_send_request(request).await
            }
        };
        let answered = sent.map(|response| leash.answer(response));
        Ok(answered.map_err(|error| Unsent { error, kept }))
    }

    async fn reopen(&self) -> Result<Line, String> {
        let name = &self.peer.host.name;
        let opened = self.peer.open().await.map_err(|(_, error)| explain(&self.peer.host, &error));
        let (protocol, line) = opened?;
        if protocol != self.protocol {
            return Err(format!("{name} speaks another protocol than it did before"));
        }
        self.came.store(true, Relaxed);
        Ok(line)
    }
}

/// A request that got no answer.
struct Unsent {
    error: TrySendError<Request<Body>>,
    /// Whether others had been answered on its connection.
    kept: bool,
}

/// The same request once more, if it may be sent twice.
fn repeat(request: &Request<Body>) -> Option<Request<Body>> {
    if !request.method().is_idempotent() || !request.body().is_end_stream() {
        return None;
    }
    let mut same = Request::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    same.method_mut().clone_from(request.method());
    same.uri_mut().clone_from(request.uri());
    *same.version_mut() = request.version();
    same.headers_mut().clone_from(request.headers());
    same.extensions_mut().clone_from(request.extensions());
    Some(same)
}

/// One connection to a host. Once this is dropped it ends with its last answer.
struct Line {
    sender: Sender,
    used: bool,
    leash: Arc<Leash>,
}

enum Sender {
    One(http1::SendRequest<Body>),
    Many(http2::SendRequest<Body>),
}

impl Sender {
    async fn is_usable(&mut self) -> bool {
        match self {
            Self::One(sender) => sender.ready().await.is_ok(),
            Self::Many(sender) => sender.ready().await.is_ok(),
        }
    }
}

fn ended(result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "the connection to a host broke off");
    }
}

/// What to tell a client whose host could not be reached or not be trusted.
fn explain(host: &Host, error: &io::Error) -> String {
    let Host { name, port, .. } = host;
    let known = error.get_ref().and_then(|cause| cause.downcast_ref());
    let hint = match known {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "; the operator may name its authority in extra-ca"
        }
        _ => "",
    };
    format!("no trusted connection to {name}:{port}: {}{hint}", chain(error))
}

/// An error and its causes. What a host of HTTP/2 says in its own words when it goes away is not among
/// them: it would seem to be ours, and may be what the host was sent.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        match cause.downcast_ref().and_then(h2::Error::reason) {
            Some(reason) => format!("{text}: {reason}"),
            None => format!("{text}: {cause}"),
        }
    })
}
