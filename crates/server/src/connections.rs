//! Taking connections and letting them go.

mod streams;

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, response::Response};
use http::{Request, uri::Scheme};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use osb_gateway::{Caller, Fair};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use crate::tls::{Protocol, Tls};

/// How long a client may take to send the head of a request, and how long an idle connection is
/// kept.
const HEAD_WITHIN: Duration = Duration::from_mins(1);
/// How large the head of a request may be, and with it the buffer of a connection. Whoever sends it
/// has shown no key yet, so all connections together must find room; but uploads are read through
/// the same buffer, and with a quarter of it they take a third longer.
const HEAD_BYTES: usize = 256 * 1024;
/// How many connections are open at a time; more have to wait for one to end.
const CONNECTIONS: usize = 4096;
/// After a failure to accept, such as too many open files: waiting helps, spinning does not.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Serves until `shutdown` ends, then waits at most `drain` for what is going on.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    routes: Router,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) {
    let connections = TaskTracker::new();
    let (ending, broken) = (CancellationToken::new(), CancellationToken::new());
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let scheme = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                let serving = Serving {
                    caller: Caller { address: peer.ip(), scheme: scheme.clone() },
                    routes: routes.clone(),
                    ending: ending.clone(),
                    broken: broken.clone(),
                    tasks: connections.clone(),
                };
                let connection = connection(stream, tls.clone(), serving);
                let broken = broken.clone();
                connections.spawn(async move {
                    broken.run_until_cancelled(connection).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    drop(listener);
    ending.cancel();
    connections.close();
    if tokio::time::timeout(drain, connections.wait()).await.is_err() {
        tracing::info!(open = connections.len(), "closing connections that are still in use");
        broken.cancel();
        connections.wait().await;
    }
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, place))
}

/// What a connection is served with.
#[derive(Clone)]
struct Serving {
    caller: Caller,
    routes: Router,
    /// The server takes nothing new.
    ending: CancellationToken,
    /// It waits no longer for what goes on.
    broken: CancellationToken,
    tasks: TaskTracker,
}

impl Serving {
    fn answer(
        &self,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response, Infallible>> + Send + use<> {
        request.extensions_mut().insert(self.caller.clone());
        self.routes.clone().oneshot(request.map(Body::new))
    }
}

/// Serves one connection, until the client or the server is done with it.
async fn connection(stream: TcpStream, tls: Option<Tls>, serving: Serving) {
    // Small answers should not wait for more; on failure they just do.
    stream.set_nodelay(true).ok();
    let result = match tls {
        None => http1(Fair::new(stream), serving).await,
        Some(tls) => {
            let ending = serving.ending.clone();
            match ending.run_until_cancelled(tls.accept(stream)).await {
                Some(Ok((stream, Protocol::Http1))) => http1(Fair::new(stream), serving).await,
                Some(Ok((stream, Protocol::Http2))) => {
                    streams::serve(Fair::new(stream), serving).await
                }
                Some(Err(error)) => return tracing::debug!(%error, "no handshake of TLS"),
                None => Ok(()),
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection broke off");
    }
}

async fn http1<S>(stream: S, serving: Serving) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let ending = serving.ending.clone();
    let service = service_fn(move |request: Request<Incoming>| serving.answer(request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        result = connection.as_mut() => result,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}
