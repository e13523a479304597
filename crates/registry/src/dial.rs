//! Connections, each to an address that was asked about.

use std::{
    collections::HashSet,
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::pki_types::ServerName;
use tokio::{
    net::{TcpStream, lookup_host},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower::Service;

use crate::{Origin, RegistryError, Scheme, Settings, trust::Trust};

/// Says of an address whether a host may be there that the operator has not named.
///
/// Images are named by clients: without this a server could be made to talk with whatever is near
/// it. It is asked about every address that is about to be dialled, also after redirects.
#[derive(Clone)]
pub struct Guard(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl Guard {
    /// `is_public` gets canonical addresses: those of IPv4 never within ones of IPv6.
    pub fn new(is_public: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_public))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// How long an address has before the next is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);
/// The most addresses of a name that are tried.
const MOST: usize = 8;

#[derive(Debug, Clone)]
pub(crate) struct Dialler(Arc<Ways>);

#[derive(Debug)]
struct Ways {
    guard: Guard,
    /// Hosts and ports that the operator names.
    named: HashSet<(String, u16)>,
    trust: Trust,
    patience: Duration,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Undialled {
    #[error("it is at an address that is not public")]
    Guarded,
    #[error("{0}")]
    Failed(io::ErrorKind, String),
}

impl Undialled {
    fn failed(doing: &str, error: &io::Error) -> Self {
        Self::Failed(error.kind(), format!("{doing}: {error}"))
    }

    /// What became of a request that got no answer, as the error of a registry.
    pub(crate) fn explain(
        error: &(dyn std::error::Error + 'static),
        host: String,
    ) -> RegistryError {
        let mut cause = Some(error);
        let mut last = error.to_string();
        while let Some(error) = cause {
            match error.downcast_ref::<Self>() {
                Some(Self::Guarded) => return RegistryError::Guarded { host },
                Some(Self::Failed(kind, message)) => {
                    return RegistryError::unreachable(
                        host,
                        io::Error::new(*kind, message.clone()),
                    );
                }
                None => last = error.to_string(),
            }
            if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
                return RegistryError::corrupt(host, format!("its answer is not HTTP: {last}"));
            }
            cause = error.source();
        }
        RegistryError::unreachable(host, io::Error::other(last))
    }
}

impl Dialler {
    pub(crate) fn new(settings: &Settings, guard: Guard) -> Result<Self, RegistryError> {
        let named = settings.named().map(|origin| (origin.host().to_owned(), origin.port()));
        let (named, patience) = (named.collect(), settings.connect_timeout);
        Ok(Self(Arc::new(Ways { guard, named, trust: Trust::new(settings)?, patience })))
    }

    async fn connect(&self, origin: Origin) -> Result<Stream, Undialled> {
        let stream = self.reach(&origin).await?;
        // Requests are small, and each waits for its answer.
        stream.set_nodelay(true).ok();
        if origin.scheme() == Scheme::Http {
            return Ok(Stream::Plain(TokioIo::new(stream)));
        }
        let config = self.0.trust.config(&origin).await;
        let config =
            config.map_err(|error| Undialled::failed("cannot read whom to trust", &error))?;
        let name = ServerName::try_from(origin.host().to_owned());
        let name = name.map_err(|_| {
            Undialled::Failed(io::ErrorKind::InvalidInput, "it is no name for TLS".to_owned())
        })?;
        let stream = TlsConnector::from(config).connect(name, stream).await;
        let stream = stream.map_err(|error| Undialled::failed("cannot begin TLS", &error))?;
        Ok(Stream::Tls(Box::new(TokioIo::new(stream))))
    }

    /// Resolves the name once, and connects to what came out of that and was asked about.
    async fn reach(&self, origin: &Origin) -> Result<TcpStream, Undialled> {
        let (host, port) = (origin.host(), origin.port());
        let found: Vec<SocketAddr> = if let Ok(address) = host.parse::<IpAddr>() {
            vec![SocketAddr::new(address, port)]
        } else {
            let found = lookup_host((host, port)).await;
            found.map_err(|error| Undialled::failed("cannot resolve it", &error))?.collect()
        };
        let is_named = self.0.named.contains(&(host.to_owned(), port));
        let permitted = found.iter().map(|at| SocketAddr::new(at.ip().to_canonical(), port));
        let permitted = permitted.filter(|at| is_named || (self.0.guard.0)(at.ip()));
        let permitted: Vec<_> = permitted.take(MOST).collect();
        if permitted.is_empty() && !found.is_empty() {
            return Err(Undialled::Guarded);
        }
        let connected = race(permitted).await;
        connected.map_err(|error| Undialled::failed("cannot connect", &error))
    }
}

/// Connects to the first that answers.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut rest = addresses.into_iter();
    let mut racing = FuturesUnordered::new();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        match rest.next() {
            Some(address) => racing.push(TcpStream::connect(address)),
            None if racing.is_empty() => return Err(failure),
            None => {}
        }
        tokio::select! {
            Some(result) = racing.next() => match result {
                Ok(connected) => return Ok(connected),
                Err(error) => failure = error,
            },
            () = sleep(STAGGER), if rest.len() > 0 => {}
        }
    }
}

impl Service<Uri> for Dialler {
    type Response = Stream;
    type Error = Undialled;
    type Future = BoxFuture<'static, Result<Stream, Undialled>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Undialled>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialler = self.clone();
        Box::pin(async move {
            let Some(origin) = Origin::of(&uri) else {
                let message = "there is nobody in the address".to_owned();
                return Err(Undialled::Failed(io::ErrorKind::InvalidInput, message));
            };
            let connecting = timeout(dialler.0.patience, dialler.connect(origin));
            connecting.await.unwrap_or_else(|_| {
                let message = "it does not take the connection in time".to_owned();
                Err(Undialled::Failed(io::ErrorKind::TimedOut, message))
            })
        })
    }
}

/// A connection to a registry.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, buffer),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
