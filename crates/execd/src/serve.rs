use std::{
    convert::Infallible,
    io::{self, Write, stdout},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    response::{IntoResponse, Response},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use osb_sys::line::Line;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tower::Service;

use crate::{
    boot::{Listen, StartError},
    daemon::Daemon,
    error::ApiError,
    log::Level,
    proxy::{self, Peer},
    token,
};

/// How long to wait when the system has no room for another connection.
const NO_ROOM: Duration = Duration::from_millis(50);

/// How many connections there are at once; others wait until one of them ends.
const CONNECTIONS: usize = 1024;

/// How long a connection may wait for a whole head of a request. Longer than clients keep connections
/// that they do not use, so that none is closed while a request is on its way.
const IDLE: Duration = Duration::from_mins(2);

/// Where requests arrive.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
    Channel(Line),
}

impl Listener {
    pub(crate) async fn bind(listen: Listen) -> Result<Self, StartError> {
        match listen {
            Listen::Tcp(address) => {
                let failed = |source| StartError::Listen { address: address.to_string(), source };
                let listener = TcpListener::bind(address).await.map_err(failed)?;
                let bound = listener.local_addr().map_err(failed)?;
                // Whoever started us may not be interested.
                drop(writeln!(stdout(), "execd listens on {bound}"));
                Ok(Self::Tcp(listener))
            }
            Listen::Unix(listener) => {
                let failed = |source| StartError::Listen { address: "its socket".into(), source };
                listener.set_nonblocking(true).map_err(failed)?;
                UnixListener::from_std(listener).map(Self::Unix).map_err(failed)
            }
            Listen::Channel(channel) => {
                let failed = |source| StartError::Listen { address: "its channel".into(), source };
                Line::new(channel).map(Self::Channel).map_err(failed)
            }
        }
    }

    /// Answers requests until no more can come.
    pub(crate) async fn serve(self, daemon: Arc<Daemon>, routes: Router) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            let place = place.expect("invariant: nobody closes the semaphore");
            match self.accept(&daemon, &routes, place).await {
                Ok(Next::Another) => {}
                Ok(Next::End) => return,
                Err(error) => {
                    daemon
                        .log
                        .write(Level::Warn, format_args!("cannot take a connection: {error}"));
                    tokio::time::sleep(NO_ROOM).await;
                }
            }
        }
    }

    async fn accept(
        &self,
        daemon: &Arc<Daemon>,
        routes: &Router,
        place: OwnedSemaphorePermit,
    ) -> io::Result<Next> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // One that has broken off already will tell so when it is read.
                drop(stream.set_nodelay(true));
                converse(stream, Some(Peer(peer.ip())), daemon, routes, place);
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                converse(stream, None, daemon, routes, place);
            }
            Self::Channel(line) => {
                let Some(((), fds)) = line.receive().await? else { return Ok(Next::End) };
                if let Some(fd) = fds.into_iter().next() {
                    let stream = std::os::unix::net::UnixStream::from(fd);
                    stream.set_nonblocking(true)?;
                    converse(UnixStream::from_std(stream)?, None, daemon, routes, place);
                }
            }
        }
        Ok(Next::Another)
    }
}

/// Whether there can be more connections.
enum Next {
    Another,
    End,
}

/// Answers the requests of one connection.
pub(crate) fn converse<S>(
    stream: S,
    peer: Option<Peer>,
    daemon: &Arc<Daemon>,
    routes: &Router,
    place: impl Send + 'static,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (tasks, ending) = (daemon.tasks.clone(), daemon.ending.clone());
    let (daemon, routes) = (Arc::clone(daemon), routes.clone());
    let answer = service_fn(move |mut request: http::Request<Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        answer(Arc::clone(&daemon), routes.clone(), request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    tasks.spawn(async move {
        let _place = place;
        let mut connection = pin!(connection);
        // A connection that breaks off is the caller's affair.
        tokio::select! {
            done = connection.as_mut() => return drop(done),
            () = ending.cancelled() => {}
        }
        // What it has begun to answer, it answers to the end.
        connection.as_mut().graceful_shutdown();
        drop(connection.await);
    });
}

async fn answer(
    daemon: Arc<Daemon>,
    mut routes: Router,
    mut request: http::Request<Incoming>,
) -> Result<Response, Infallible> {
    daemon.rest.disturb();
    if !token::admits(daemon.token.as_ref(), request.headers()) {
        return Ok(ApiError::unauthorized().into_response());
    }
    proxy::enter_own_proxy(&mut request);
    if !daemon.log.wants(Level::Debug) {
        return routes.call(request).await;
    }
    let (asked, began) = (format!("{} {}", request.method(), request.uri().path()), Instant::now());
    let answer = routes.call(request).await?;
    let (status, elapsed) = (answer.status(), began.elapsed());
    daemon.log.write(Level::Debug, format_args!("{asked}: {status} in {elapsed:?}"));
    Ok(answer)
}
