//! A scripted HTTP server, for tests of this crate and of programs built on it.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};

use crate::Connection;

mod backend;

pub use backend::FakeBackend;

/// What a script answers.
pub type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A server on a port of its own that answers from a script and remembers what it was asked.
#[derive(Debug)]
pub struct ScriptedServer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request<Bytes>>>>,
    // Dropping it stops the server.
    _tasks: JoinSet<()>,
}

impl ScriptedServer {
    /// Starts a server that answers every request with what `script` says.
    pub async fn start(script: impl Fn(&Request<Bytes>) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, Arc::new(script), Arc::clone(&seen)));
        Self { address, seen, _tasks: tasks }
    }

    /// A connection to this server.
    pub fn connection(&self) -> Connection {
        Connection::new(&self.address.to_string()).expect("an address is a domain")
    }

    /// `host:port`, for endpoint answers that lead back here.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Request<Bytes>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The requests so far, as `METHOD /path?query`.
    pub fn calls(&self) -> Vec<String> {
        self.seen()
            .iter()
            .map(|request| format!("{} {}", request.method(), request.uri()))
            .collect()
    }
}

async fn serve(
    listener: TcpListener,
    script: Arc<impl Fn(&Request<Bytes>) -> Reply + Send + Sync + 'static>,
    seen: Arc<Mutex<Vec<Request<Bytes>>>>,
) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
        connections.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let request = Request::from_parts(head, body);
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
                    Ok::<_, hyper::Error>(script(&request))
                }
            });
            // A client that goes away is no failure of the test that sent it away.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
    }
}

/// An answer with a body.
pub fn reply(status: u16, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()).boxed_unsync());
    *reply.status_mut() = StatusCode::from_u16(status).expect("a status that exists");
    reply
}

/// A successful event stream of these pieces, which stays open at the end if `then` says so.
pub fn stream_reply<P: Into<Bytes>>(pieces: impl IntoIterator<Item = P>, then: Then) -> Reply {
    let pieces: Vec<Bytes> = pieces.into_iter().map(Into::into).collect();
    let frames = stream::iter(pieces).map(|piece| Ok(Frame::data(piece)));
    match then {
        Then::End => Response::new(StreamBody::new(frames).boxed_unsync()),
        Then::Hang => {
            Response::new(StreamBody::new(frames.chain(stream::pending())).boxed_unsync())
        }
    }
}

/// Lets the pieces of a streamed answer wait before they leave.
pub fn delayed(reply: Reply, delay: Duration) -> Reply {
    reply.map(|body| {
        let held = stream::once(tokio::time::sleep(delay)).flat_map(|()| stream::empty());
        StreamBody::new(held.chain(BodyStream::new(body))).boxed_unsync()
    })
}

/// What a streamed answer does after its last piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    End,
    Hang,
}
