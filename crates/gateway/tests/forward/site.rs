use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use osb_api::SandboxId;
use osb_core::{ImageName, Runtime as _, SandboxSpec, Token, testkit::FakeRuntime};
use osb_gateway::{Body, Gateway, GatewayError, Route};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_util::task::TaskTracker;

use crate::socket::Socket;

/// The body of a service's answer.
pub(crate) type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// A port on which services listen.
pub(crate) const PORT: u16 = 8080;

/// A gateway over a fake runtime, and the tasks of the services in its sandboxes.
pub(crate) struct Site {
    pub(crate) runtime: FakeRuntime,
    pub(crate) gateway: Gateway,
    pub(crate) tasks: TaskTracker,
}

impl Site {
    pub(crate) fn new() -> Self {
        let runtime = FakeRuntime::new();
        let gateway = Gateway::new(Arc::new(runtime.clone()));
        Self { runtime, gateway, tasks: TaskTracker::new() }
    }

    /// A running sandbox.
    pub(crate) async fn sandbox(&self) -> SandboxId {
        let spec = SandboxSpec::new(
            SandboxId::random(),
            ImageName::new("host"),
            vec!["sleep".to_owned()],
            Token::new("t"),
        );
        self.runtime.ensure(&spec).await.expect("a sandbox");
        spec.id
    }

    /// A running sandbox with a web service on [`PORT`].
    pub(crate) async fn service<F, A>(&self, answer: F) -> SandboxId
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response<Answer>> + Send + 'static,
    {
        let id = self.sandbox().await;
        self.raw_service(id, move |stream| {
            let answer = answer.clone();
            async move {
                let service = service_fn(move |request| {
                    let answer = answer(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades();
                // Tests break connections on purpose.
                connection.await.ok();
            }
        });
        id
    }

    /// A service on [`PORT`] that speaks whatever it likes.
    pub(crate) fn raw_service<F, A>(&self, id: SandboxId, serve: F)
    where
        F: Fn(Socket) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let tasks = self.tasks.clone();
        self.runtime.listen(id, PORT, move |line| {
            tasks.spawn(serve(Socket::new(line)));
        });
    }

    pub(crate) async fn forward<B>(
        &self,
        id: SandboxId,
        request: Request<B>,
    ) -> Result<Response<Body>, GatewayError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let rest = request.uri().path_and_query().map_or("/", |rest| rest.as_str()).to_owned();
        let route = Route { sandbox: id, port: PORT, rest: &rest, prefix: "/proxy" };
        self.gateway.forward(&route, request).await
    }

    /// The text of the answer to a GET of `rest`.
    pub(crate) async fn get(&self, id: SandboxId, rest: &str) -> Result<String, GatewayError> {
        let request = Request::get(rest).body(text("")).expect("a request");
        text_of(self.forward(id, request).await?).await
    }
}

pub(crate) fn text(text: impl Into<Bytes>) -> Full<Bytes> {
    Full::new(text.into())
}

pub(crate) fn answer(body: impl Into<Bytes>) -> Response<Answer> {
    Response::new(text(body).boxed_unsync())
}

pub(crate) async fn text_of(response: Response<Body>) -> Result<String, GatewayError> {
    let bytes = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A body that is written piece by piece; it ends when the sender is dropped.
pub(crate) fn channel() -> (Sender<Bytes>, UnsyncBoxBody<Bytes, Infallible>) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, body_of(receiver))
}

fn body_of(receiver: Receiver<Bytes>) -> UnsyncBoxBody<Bytes, Infallible> {
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async {
        let bytes = receiver.recv().await?;
        Some((Ok(Frame::data(bytes)), receiver))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Lets everything run that can run. All of it runs on this thread.
pub(crate) async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}
