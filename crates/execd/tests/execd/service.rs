//! A web service such as programs in a sandbox start, for the proxy to find.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};
use tokio_util::task::TaskTracker;

pub(crate) type Answer = UnsyncBoxBody<Bytes, hyper::Error>;

/// A service that ends with this value.
pub(crate) struct Service {
    pub(crate) port: u16,
    task: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start<F, A>(answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Response<Answer>> + Send + 'static,
    {
        Self::on(([127, 0, 0, 1], 0).into(), answer).await
    }

    pub(crate) async fn on<F, A>(address: SocketAddr, answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Response<Answer>> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tasks = TaskTracker::new();
        let task = tasks.clone().spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let answer = answer.clone();
                let service = service_fn(move |request| {
                    let answer = answer(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tasks.spawn(connection.with_upgrades());
            }
        });
        Self { port, task }
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/proxy/{}{rest}", self.port)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn answer(body: impl Into<Bytes>) -> Response<Answer> {
    Response::new(Full::new(body.into()).map_err(|never| match never {}).boxed_unsync())
}

/// A body that is written piece by piece; it ends when the sender is dropped.
pub(crate) fn pieces<E>()
-> (mpsc::Sender<Bytes>, impl hyper::body::Body<Data = Bytes, Error = E> + Send + Sync + use<E>)
where
    E: Send + Sync,
{
    let (sender, mut receiver) = mpsc::channel(1);
    let frames = futures_util::stream::poll_fn(move |context| {
        receiver.poll_recv(context).map(|piece| piece.map(|piece| Ok::<_, E>(Frame::data(piece))))
    });
    (sender, StreamBody::new(frames))
}
