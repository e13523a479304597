//! Looking into a connection, where a credential or a rule about requests needs it.
//!
//! The server is then the client's peer, with a certificate that an [`Authority`] of the sandbox's own
//! vouches for, and the host's client, whose certificate it verifies. Between the two it passes
//! requests on, as [`Rules`] change them. Nothing is passed to a host that was not verified.

mod abrupt;
mod authority;
mod beside;
mod credentials;
mod exchange;
mod expect;
mod judge;
mod leash;
mod peer;
mod share;

use std::{fmt, io, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use osb_core::Clock;
use rustls::{
    ClientConfig, ServerConfig,
    client::Resumption,
    crypto::CryptoProvider,
    server::{Acceptor, NoServerSessionStorage},
    sign::SingleCertAndKey,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::OnceCell,
    task::spawn_blocking,
};
use tokio_rustls::LazyConfigAcceptor;

pub use self::authority::Root;
pub(crate) use self::{
    authority::Authority, credentials::Credentials, judge::Judge, share::Shares,
};
use self::{
    beside::Beside,
    exchange::Exchange,
    peer::{Peer, Protocol, Upstream},
};
use crate::{ExtraCa, Name, extra_ca, limits::Place};

#[cfg(test)]
mod tests;

/// The body of a request or an answer on its way.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// What becomes of the answer to a request.
pub(crate) type Finish = Box<dyn FnOnce(Response<Body>) -> Response<Body> + Send>;

/// What is done to the requests of a sandbox to one host.
#[async_trait]
pub(crate) trait Rules: Send + Sync + 'static {
    /// Judges a request and changes it.
    async fn treat(&self, request: Request<Body>) -> Result<(Request<Body>, Finish), Refusal>;

    /// Hears of a request that nobody is asked about, because it is for another host than its
    /// connection, or because its method is never passed on.
    fn turned_away(&self, _method: &Method, _path: &str) {}

    /// Whether nothing is to be passed on any more.
    fn is_over(&self) -> bool {
        false
    }
}

/// Opens connections to one host.
#[async_trait]
pub(crate) trait Connect: Send + Sync + 'static {
    async fn connect(&self) -> io::Result<Reached>;
}

/// A connection to a host.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) stream: TcpStream,
    /// What it keeps as long as it is open: its mark, and a place among all connections, unless it
    /// shares that of the client's.
    pub(crate) kept: (Arc<()>, Option<Place>),
}

/// The answer to a request that is not passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    pub message: String,
    /// What programs may want to know.
    pub facts: serde_json::Map<String, serde_json::Value>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), facts: serde_json::Map::new() }
    }
}

/// Whom a connection is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub name: Name,
    pub port: u16,
    pub scheme: Scheme,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// Why a connection was not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InterceptError {
    #[error("the client asks for {asked:?} on a connection to {name}")]
    Mismatch { name: Name, asked: Option<String> },
    #[error("the client does not speak HTTP")]
    NotHttp,
    #[error("the client does not trust us, or broke off")]
    Client(#[source] io::Error),
    #[error("the host was not reached")]
    Unreached,
    #[error("the host did not prove who it is")]
    Unverified,
    #[error("cannot tell whom the host trusts")]
    Trust(#[source] io::Error),
    #[error("cannot make a certificate")]
    Certificate(#[source] io::Error),
}

/// What a client does of its handshake, unless it takes too long.
async fn in_time<T>(part: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    /// How long a client may take for each part.
    const PATIENCE: Duration = Duration::from_secs(30);
    let done = tokio::time::timeout(PATIENCE, part).await;
    done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Opens connections and serves them. Copies share everything.
#[derive(Clone)]
pub(crate) struct Interceptor {
    provider: Arc<CryptoProvider>,
    extra: Option<ExtraCa>,
    /// Whom we trust. It is read with the first connection that needs it: most servers never do, and
    /// it takes longer than all else at their start.
    trusted: Arc<OnceCell<Arc<ClientConfig>>>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Interceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interceptor").finish_non_exhaustive()
    }
}

impl Interceptor {
    /// Trusts whom the host trusts, and whom `extra` names.
    pub(crate) fn new(extra: Option<ExtraCa>, clock: Arc<dyn Clock>) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        Self { provider, extra, trusted: Arc::default(), clock }
    }

    pub(crate) async fn trusted(&self) -> io::Result<Arc<ClientConfig>> {
        let (provider, extra) = (Arc::clone(&self.provider), self.extra.clone());
        let read = || async {
            // There are some hundred files to be read.
            let roots = spawn_blocking(move || extra_ca::roots(extra.as_ref())).await?;
            let mut config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(io::Error::other)?
                .with_root_certificates(roots)
                .with_no_client_auth();
            // A session that goes on shows no certificate, and would tell the host which sandboxes
            // are of one server.
            config.resumption = Resumption::disabled();
            Ok(Arc::new(config))
        };
        self.trusted.get_or_try_init(read).await.cloned()
    }

    /// Serves one connection of a sandbox until it ends. Everything about it is part of this, and
    /// takes its turn with it.
    pub(crate) async fn serve<C>(
        &self,
        client: C,
        host: Host,
        authority: &Authority,
        connect: Arc<dyn Connect>,
        rules: Arc<dyn Rules>,
        shares: &Shares,
    ) -> Result<(), InterceptError>
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (beside, mut queue) = Beside::new();
        let serving = async move {
            match host.scheme {
                Scheme::Http => {
                    let upstream = Upstream::later(Peer::plain(host.clone(), connect, beside));
                    Exchange::new(host, rules, upstream).serve(client, None).await
                }
                Scheme::Https => {
                    let hello = LazyConfigAcceptor::new(Acceptor::default(), client);
                    let hello = in_time(hello).await.map_err(|error| {
                        let strange = error.kind() == io::ErrorKind::InvalidData;
                        if strange {
                            InterceptError::NotHttp
                        } else {
                            InterceptError::Client(error)
                        }
                    })?;
                    let asked = hello.client_hello().server_name().map(str::to_owned);
                    let is_it =
                        |asked: &str| Name::parse(asked).is_ok_and(|asked| asked == host.name);
                    if !asked.as_deref().is_some_and(is_it) {
                        return Err(InterceptError::Mismatch { name: host.name, asked });
                    }
                    let config = self.trusted().await.map_err(InterceptError::Trust)?;
                    let offered = Protocol::offered(hello.client_hello().alpn());
                    let share = shares.share();
                    let peer =
                        Peer::verified(host.clone(), connect, config, offered, beside, &share);
                    // Before the client's: both must speak the same protocol.
                    let (protocol, upstream, opened) = Upstream::now(peer, offered).await;
                    let config = self.present(&host.name, authority, offered.agreed(protocol))?;
                    let client = hello.into_stream(config);
                    let client = in_time(client).await.map_err(InterceptError::Client);
                    let share = (protocol == Protocol::Http2).then_some(share);
                    // Whatever the client makes of it.
                    let served = match client {
                        Ok(client) => {
                            Exchange::new(host, rules, upstream).serve(client, share).await
                        }
                        Err(error) => Err(error),
                    };
                    opened.result().and(served)
                }
            }
        };
        queue.run(Box::pin(serving)).await
    }

    /// How we present ourselves as `name`.
    fn present(
        &self,
        name: &Name,
        authority: &Authority,
        protocol: Option<Protocol>,
    ) -> Result<Arc<ServerConfig>, InterceptError> {
        let now = self.clock.now().into();
        let certified =
            authority.vouch(name, now, &self.provider).map_err(InterceptError::Certificate)?;
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| InterceptError::Certificate(io::Error::other(error)))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols =
            protocol.map(|protocol| protocol.id().to_vec()).into_iter().collect();
        // A connection that is resumed would be judged by what was true before.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}
