use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, client::conn::http1::SendRequest, service::service_fn};
use hyper_util::rt::TokioIo;
use osb_api::SandboxId;
use osb_gateway::{Held, Route};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

use crate::site::{Answer, PORT, Site, answer, settle};

/// A client's connection to a server that forwards everything to one sandbox.
async fn front(site: &Site, sandbox: SandboxId) -> SendRequest<Empty<Bytes>> {
    front_holding(site, sandbox, &Arc::default()).await
}

/// The same, with each request holding `what` until it is over.
async fn front_holding(
    site: &Site,
    sandbox: SandboxId,
    what: &Arc<()>,
) -> SendRequest<Empty<Bytes>> {
    let what = Arc::clone(what);
    let (near, far) = UnixStream::pair().expect("a stream");
    let gateway = site.gateway.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let gateway = gateway.clone();
        request.extensions_mut().insert(Held::new(Arc::clone(&what)));
        async move {
            let rest = request.uri().path().to_owned();
            let route = Route { sandbox, port: PORT, rest: &rest, prefix: "" };
            let response = gateway.forward(&route, request).await;
            Ok::<_, Infallible>(response.expect("an answer"))
        }
    });
    let server = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(far), service)
        .with_upgrades();
    site.tasks.spawn(async { server.await.ok() });
    let (sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(near)).await.expect("a connection");
    site.tasks.spawn(async { connection.with_upgrades().await.ok() });
    sender
}

fn websocket() -> Request<Empty<Bytes>> {
    Request::get("/socket")
        .header("host", "gw.example")
        .header("connection", "keep-alive, Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .body(Empty::new())
        .expect("a request")
}

/// A service that agrees to an upgrade and echoes, with an exclamation mark when the client ends.
async fn echo(site: &Site) -> SandboxId {
    let tasks = site.tasks.clone();
    site.service(move |mut request| {
        let tasks = tasks.clone();
        async move {
            if !request.headers().contains_key("upgrade") {
                return answer("plain");
            }
            assert_eq!(request.headers()["connection"], "upgrade");
            assert_eq!(request.headers()["sec-websocket-key"], "dGhlIHNhbXBsZSBub25jZQ==");
            let upgrade = hyper::upgrade::on(&mut request);
            tasks.spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.expect("an upgrade"));
                let mut buffer = [0; 1024];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    let echo = buffer.get(..count).expect("what was read");
                    stream.write_all(echo).await.expect("an echo");
                }
                stream.write_all(b"!").await.ok();
                stream.shutdown().await.ok();
            });
            agreement()
        }
    })
    .await
}

fn agreement() -> Response<Answer> {
    let mut response = answer("");
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    for (name, value) in
        [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-accept", "yes")]
    {
        headers.insert(name, value.parse().expect("a header"));
    }
    response
}

#[tokio::test]
async fn an_upgraded_stream_is_copied_both_ways_to_its_end() {
    let site = Site::new();
    let id = echo(&site).await;
    let mut client = front(&site, id).await;
    let response = client.send_request(websocket()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["upgrade"], "websocket");
    assert_eq!(response.headers()["connection"], "upgrade");
    assert_eq!(response.headers()["sec-websocket-accept"], "yes");

    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    for word in ["ping", "pong"] {
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut echo = [0; 4];
        stream.read_exact(&mut echo).await.unwrap();
        assert_eq!(echo, word.as_bytes());
    }
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "!");
}

#[tokio::test]
async fn a_service_may_decline_an_upgrade() {
    let site = Site::new();
    let id = site.service(async |_| answer("no sockets here")).await;
    let mut client = front(&site, id).await;
    let response = client.send_request(websocket()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "no sockets here");
}

#[tokio::test]
async fn an_offer_of_http2_is_not_passed_on() {
    let site = Site::new();
    let id = echo(&site).await;
    let mut client = front(&site, id).await;
    let mut request = websocket();
    request.headers_mut().insert("upgrade", "h2c".parse().unwrap());
    let response = client.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn the_end_of_the_sandbox_ends_its_upgraded_streams() {
    let site = Site::new();
    let id = echo(&site).await;
    let mut client = front(&site, id).await;
    let response = client.send_request(websocket()).await.unwrap();
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"ping").await.unwrap();
    stream.read_exact(&mut [0; 4]).await.unwrap();
    site.runtime.vanish(id);
    let ended = stream.read(&mut [0; 1]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn shutdown_ends_everything_that_runs() {
    let site = Site::new();
    let id = echo(&site).await;
    let mut client = front(&site, id).await;
    let response = client.send_request(websocket()).await.unwrap();
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    site.get(id, "/").await.unwrap();
    site.gateway.shutdown().await;
    let ended = stream.read(&mut [0; 1]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn what_a_request_holds_is_kept_until_it_is_over() {
    let site = Site::new();
    let id = echo(&site).await;
    let what = Arc::new(());
    let mut client = front_holding(&site, id, &what).await;
    let response = client.send_request(websocket()).await.unwrap();
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    settle().await;
    // Whoever served the connection is gone with the upgrade.
    assert_eq!(Arc::strong_count(&what), 2, "the stream goes on");
    stream.shutdown().await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.unwrap();
    drop(stream);
    drop(client);
    site.tasks.close();
    site.tasks.wait().await;
    settle().await;
    assert_eq!(Arc::strong_count(&what), 1);

    let request = Request::get("/").extension(Held::new(Arc::clone(&what)));
    let response = site.forward(id, request.body(Empty::new()).unwrap()).await.unwrap();
    assert_eq!(Arc::strong_count(&what), 2, "its body is still to be read");
    drop(response);
    assert_eq!(Arc::strong_count(&what), 1);
}
