use std::{
    convert::Infallible,
    io::{self, Write, stdout},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    response::{IntoResponse, Response},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
};
use tower::Service;

use crate::{
    boot::{Listen, StartError},
    daemon::Daemon,
    error::ApiError,
    routes, token,
};

/// How long to wait when the system has no room for another connection.
const NO_ROOM: Duration = Duration::from_millis(50);

/// Where requests arrive.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
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
        }
    }

    /// Answers requests for ever.
    pub(crate) async fn serve<Never>(self, daemon: Arc<Daemon>, routes: Router) -> Never {
        loop {
            if self.accept(&daemon, &routes).await.is_err() {
                tokio::time::sleep(NO_ROOM).await;
            }
        }
    }

    async fn accept(&self, daemon: &Arc<Daemon>, routes: &Router) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                converse(stream, daemon, routes);
            }
            Self::Unix(listener) => converse(listener.accept().await?.0, daemon, routes),
        }
        Ok(())
    }
}

/// Answers the requests of one connection.
fn converse<S>(stream: S, daemon: &Arc<Daemon>, routes: &Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (tasks, daemon, routes) = (daemon.tasks.clone(), Arc::clone(daemon), routes.clone());
    let answer = service_fn(move |request| answer(Arc::clone(&daemon), routes.clone(), request));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    tasks.spawn(async move {
        // A connection that breaks off is the caller's affair.
        drop(connection.await);
    });
}

async fn answer(
    daemon: Arc<Daemon>,
    mut routes: Router,
    mut request: http::Request<Incoming>,
) -> Result<Response, Infallible> {
    if !token::admits(daemon.token.as_ref(), request.headers()) {
        return Ok(ApiError::unauthorized().into_response());
    }
    routes::enter_own_proxy(&mut request);
    routes.call(request).await
}
