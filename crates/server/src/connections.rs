//! Taking connections and letting them go.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, response::Response};
use http::{Request, uri::Scheme};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use osb_gateway::{Caller, Fair};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

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
    routes: Router,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) {
    let connections = TaskTracker::new();
    let (ending, broken) = (CancellationToken::new(), CancellationToken::new());
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                let connection = connection(stream, peer, routes.clone(), ending.clone());
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

/// Serves one connection, until the client or the server is done with it.
async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    routes: Router,
    ending: CancellationToken,
) {
    // Small answers should not wait for more; on failure they just do.
    stream.set_nodelay(true).ok();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Caller { address: peer.ip(), scheme: Scheme::HTTP });
        let answer = routes.clone().oneshot(request.map(Body::new));
        async move { answer.await as Result<Response, Infallible> }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Fair::new(stream)), service)
        .with_upgrades();
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection broke off");
    }
}
