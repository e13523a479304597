use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use osb_api::SandboxId;
use osb_core::{
    Dialled, Exit, Observed, Pause as _, Runtime, RuntimeError, SandboxSpec,
    testkit::{Call, FakeRuntime},
};
use osb_gateway::{Fault, Gateway, GatewayError, Route, Stage};

use crate::site::{Answer, PORT, Site, answer, channel, text};

#[tokio::test]
async fn a_dead_port_is_refused_and_may_be_tried_again() {
    let site = Site::new();
    let id = site.sandbox().await;
    let error = site.get(id, "/").await.unwrap_err();
    let refused = matches!(error, GatewayError::Refused { sandbox, port: PORT } if sandbox == id);
    assert!(refused, "{error:?}");
    assert_eq!((error.fault(), error.is_retry_safe()), (Fault::Upstream, true));
}

#[tokio::test]
async fn a_sandbox_that_is_not_there_is_not_found() {
    let site = Site::new();
    let error = site.get(SandboxId::random(), "/").await.unwrap_err();
    assert!(matches!(error, GatewayError::NotFound(_)), "{error:?}");
    assert_eq!(error.fault(), Fault::Client);
}

#[tokio::test]
async fn a_runtime_that_fails_is_our_fault() {
    let site = Site::new();
    let id = site.service(async |_| answer("hello")).await;
    site.runtime.fail_next(Call::Dial, RuntimeError::failed("open the namespace", "no memory"));
    let error = site.get(id, "/").await.unwrap_err();
    assert!(matches!(error, GatewayError::Failed { .. }), "{error:?}");
    assert_eq!((error.fault(), error.is_retry_safe()), (Fault::Us, true));
    assert_eq!(site.get(id, "/").await.unwrap(), "hello");
}

#[tokio::test]
async fn a_sandbox_that_ends_breaks_its_streams() {
    let site = Site::new();
    let (events, body) = channel();
    let body = Arc::new(std::sync::Mutex::new(Some(body)));
    let id = site
        .service(move |_| {
            let body: Answer = body.lock().unwrap().take().expect("one request");
            async { Response::new(body) }
        })
        .await;
    let request = Request::get("/").body(text("")).unwrap();
    let mut stream = site.forward(id, request).await.unwrap().into_body();
    events.send(Bytes::from_static(b"first")).await.unwrap();
    assert_eq!(stream.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
    site.runtime.end(id, Exit::Signal(9));
    let error = stream.frame().await.unwrap().unwrap_err();
    assert!(matches!(error, GatewayError::Broken { .. }), "{error:?}");
}

#[tokio::test]
async fn a_service_that_breaks_off_breaks_the_body() {
    let site = Site::new();
    let id = site.sandbox().await;
    site.raw_service(id, |mut stream| async move {
        stream.read_head().await;
        stream.say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
    });
    let request = Request::get("/").body(text("")).unwrap();
    let response = site.forward(id, request).await.unwrap();
    assert_eq!(response.headers()["content-length"], "10");
    let error = response.into_body().collect().await.unwrap_err();
    assert!(matches!(error, GatewayError::Broken { .. }), "{error:?}");
}

#[tokio::test]
async fn nonsense_and_excess_are_the_services_fault() {
    let many = "x: 1\r\n".repeat(1000);
    let long = "x".repeat(1024 * 1024);
    for head in [
        "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        format!("HTTP/1.1 200 OK\r\nx: {long}\r\n\r\n"),
        "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000),
    ] {
        let site = Site::new();
        let id = site.sandbox().await;
        let bytes = head.clone();
        site.raw_service(id, move |mut stream| {
            let bytes = bytes.clone();
            async move {
                stream.read_head().await;
                stream.say(&bytes).await;
                stream.read_head().await;
            }
        });
        let error = site.get(id, "/").await.unwrap_err();
        let start: String = head.chars().take(40).collect();
        assert!(matches!(error, GatewayError::Broken { .. }), "{start}: {error:?}");
    }
}

#[tokio::test]
async fn a_service_may_say_that_its_answer_is_still_to_come() {
    let site = Site::new();
    let id = site.sandbox().await;
    site.raw_service(id, |mut stream| async move {
        stream.read_head().await;
        stream.say(&"HTTP/1.1 102 Processing\r\n\r\n".repeat(10)).await;
        stream.say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nit").await;
    });
    assert_eq!(site.get(id, "/").await.unwrap(), "it");
}

#[tokio::test]
async fn a_client_that_breaks_off_is_to_blame() {
    let site = Site::new();
    let id = site
        .service(async |request| {
            // It waits for a body that never ends well.
            request.into_body().collect().await.ok();
            answer("too late")
        })
        .await;
    let pieces = futures_util::stream::iter([
        Ok(Frame::data(Bytes::from_static(b"half"))),
        Err(std::io::Error::other("reset by peer")),
    ]);
    let request = Request::post("/").body(StreamBody::new(pieces)).unwrap();
    let error = site.forward(id, request).await.unwrap_err();
    assert!(matches!(error, GatewayError::BadRequest(_)), "{error:?}");
    assert_eq!(error.fault(), Fault::Client);
}

#[tokio::test]
async fn what_cannot_be_forwarded_is_the_clients_fault() {
    let site = Site::new();
    let id = site.service(async |_| answer("")).await;
    let connect = Request::connect("/").body(text("")).unwrap();
    let upgrade = Request::get("/")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(text(""))
        .unwrap();
    for request in [connect, upgrade] {
        let error = site.forward(id, request).await.unwrap_err();
        assert!(matches!(error, GatewayError::BadRequest(_)), "{error:?}");
    }
    let route = Route { sandbox: id, port: PORT, rest: "no-slash", prefix: "" };
    let error = site.gateway.forward(&route, Request::new(text(""))).await.unwrap_err();
    assert!(matches!(error, GatewayError::BadRequest(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_service_is_given_up_only_where_configured() {
    let site = Site::new();
    let id = site.service(async |_| answer("awake")).await;
    Runtime::pause(&site.runtime).unwrap().pause(id).await.unwrap();

    let patient = site.get(id, "/");
    let patience = tokio::time::timeout(Duration::from_hours(1), patient).await;
    assert!(patience.is_err(), "it answered or gave up: {patience:?}");

    let gateway = site.gateway.clone().answer_within(Duration::from_secs(10));
    let route = Route { sandbox: id, port: PORT, rest: "/", prefix: "" };
    let error = gateway.forward(&route, Request::new(text(""))).await.unwrap_err();
    let late = matches!(error, GatewayError::Timeout { stage: Stage::Answer, .. });
    assert!(late && !error.is_retry_safe(), "{error:?}");

    site.runtime.resume(id).await.unwrap();
    assert_eq!(site.get(id, "/").await.unwrap(), "awake");
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_accepts_nothing_is_given_up() {
    let gateway = Gateway::new(Arc::new(Deaf(FakeRuntime::new())));
    let route = Route { sandbox: SandboxId::random(), port: PORT, rest: "/", prefix: "" };
    let error = gateway.forward(&route, Request::new(text(""))).await.unwrap_err();
    let late = matches!(error, GatewayError::Timeout { stage: Stage::Accept, .. });
    assert!(late && error.is_retry_safe(), "{error:?}");
}

#[tokio::test]
async fn more_than_the_most_is_refused_until_one_is_over() {
    let site = Site::new();
    let id = site.service(async |_| answer("hello")).await;
    let gateway = site.gateway.clone().at_most(1);
    let route = Route { sandbox: id, port: PORT, rest: "/", prefix: "" };
    let first = gateway.forward(&route, Request::new(text(""))).await.unwrap();
    let error = gateway.forward(&route, Request::new(text(""))).await.unwrap_err();
    assert!(matches!(error, GatewayError::Busy) && error.is_retry_safe(), "{error:?}");
    drop(first);
    gateway.forward(&route, Request::new(text(""))).await.unwrap();
}

/// A runtime whose dials never come to anything.
struct Deaf(FakeRuntime);

#[async_trait]
impl Runtime for Deaf {
    fn name(&self) -> &'static str {
        "deaf"
    }

    async fn ensure(&self, spec: &SandboxSpec) -> Result<Observed, RuntimeError> {
        self.0.ensure(spec).await
    }

    async fn remove(&self, id: SandboxId) -> Result<(), RuntimeError> {
        self.0.remove(id).await
    }

    async fn list(&self) -> Result<Vec<Observed>, RuntimeError> {
        self.0.list().await
    }

    fn watch(&self) -> BoxStream<'static, Observed> {
        self.0.watch()
    }

    async fn dial(&self, _: SandboxId, _: u16) -> Result<Dialled, RuntimeError> {
        std::future::pending().await
    }
}
