//! The same server behind TLS, called by real clients of HTTP/1.1 and HTTP/2.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use osb_server::{RawConfig, RawTls};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::task::TaskTracker;

use crate::{
    endpoints::{change_protocol, echo, parrot},
    harness::{KEY, TestServer, World},
};

const NAME: &str = "sandboxes.example.com";

/// Writes a certificate and its key to the directory, and returns it for those who should trust it.
fn certify(dir: &Path) -> CertificateDer<'static> {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    osb_sys::fs::write(dir.join("cert.pem"), cert.pem()).expect("a file");
    osb_sys::fs::write(dir.join("key.pem"), signing_key.serialize_pem()).expect("a file");
    cert.der().clone()
}

fn settings(dir: &Path) -> RawConfig {
    let tls = RawTls { certificate: dir.join("cert.pem"), key: dir.join("key.pem") };
    RawConfig { tls: Some(tls), ..RawConfig::default() }
}

async fn serve() -> (TestServer, CertificateDer<'static>) {
    let world = World::new();
    let trusted = certify(world.dir.path());
    let raw = settings(world.dir.path());
    (world.serve_with(raw).await, trusted)
}

/// A connection of somebody who trusts this certificate alone.
async fn connect(
    server: &TestServer,
    trusted: &CertificateDer<'static>,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(&server.address).await?;
    let name = ServerName::try_from(NAME).expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
    Ok(stream)
}

type Sender<B> = (http2::SendRequest<B>, TaskTracker);

async fn http2(server: &TestServer, trusted: &CertificateDer<'static>) -> Sender<Full<Bytes>> {
    let stream = TokioIo::new(connect(server, trusted, b"h2").await.expect("a connection"));
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), stream).await.expect("a handshake");
    let tasks = TaskTracker::new();
    tasks.spawn(async {
        connection.await.ok();
    });
    (sender, tasks)
}

/// A request with the key. Over HTTP/2 the whole address is its target.
fn request(target: &str) -> http::request::Builder {
    Request::get(target).header("open-sandbox-api-key", KEY)
}

#[tokio::test]
async fn http1_is_served_and_sandboxes_hear_of_tls() {
    let (server, trusted) = serve().await;
    let stream = TokioIo::new(connect(&server, &trusted, b"http/1.1").await.expect("a connection"));
    let (mut sender, connection) = http1::handshake(stream).await.expect("a handshake");
    let tasks = TaskTracker::new();
    tasks.spawn(connection.with_upgrades());
    let mut ask = async |target: &str, method: &str, body: &'static str| {
        let request = request(target)
            .method(method)
            .header("host", NAME)
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(body));
        let answer = sender.send_request(request.expect("a request")).await.expect("an answer");
        let (parts, body) = answer.into_parts();
        (parts.status, body.collect().await.expect("a body").to_bytes())
    };
    let body = r#"{"image": {"uri": "host"}, "entrypoint": ["x"], "resourceLimits": {}}"#;
    let (status, made) = ask("/v1/sandboxes", "POST", body).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let made: Value = serde_json::from_slice(&made).expect("JSON");
    let id = made["id"].as_str().expect("an id").to_owned();
    server.world.runtime.listen(id.parse().expect("an id"), 8080, echo);
    let (_, head) = ask(&format!("/sandboxes/{id}/proxy/8080/"), "GET", "").await;
    let head = String::from_utf8_lossy(&head).into_owned();
    assert!(head.contains("x-forwarded-proto: https"), "{head}");

    server.world.runtime.listen(id.parse().expect("an id"), 8080, parrot);
    let stream = connect(&server, &trusted, b"http/1.1").await.expect("a connection");
    change_protocol(&server, &id, stream).await;
}

#[tokio::test]
async fn http2_carries_many_requests_to_routes_and_sandboxes() {
    let (server, trusted) = serve().await;
    let (sender, _tasks) = http2(&server, &trusted).await;
    let send = async |request: Request<Full<Bytes>>| {
        let answer = sender.clone().send_request(request).await.expect("an answer");
        assert_eq!(answer.version(), Version::HTTP_2);
        let (parts, body) = answer.into_parts();
        (parts.status, body.collect().await.expect("a body").to_bytes())
    };
    let at = |path: &str| format!("https://{NAME}{path}");
    let body = r#"{"image": {"uri": "host"}, "entrypoint": ["x"], "resourceLimits": {}}"#;
    let create = request(&at("/v1/sandboxes"))
        .method("POST")
        .header("content-type", "application/json")
        .body(Full::from(body));
    let (status, made) = send(create.expect("a request")).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{made:?}");
    let made: Value = serde_json::from_slice(&made).expect("JSON");
    let id = made["id"].as_str().expect("an id").to_owned();

    let endpoint = request(&at(&format!("/v1/sandboxes/{id}/endpoints/80"))).body(Full::default());
    let (_, endpoint) = send(endpoint.expect("a request")).await;
    let endpoint: Value = serde_json::from_slice(&endpoint).expect("JSON");
    assert_eq!(endpoint["endpoint"], format!("{NAME}/v1/sandboxes/{id}/proxy/80"));

    server.world.runtime.listen(id.parse().expect("an id"), 8080, echo);
    let ask = |n: usize| {
        let request = request(&at(&format!("/sandboxes/{id}/proxy/8080/{n}?q")))
            .header("host", "elsewhere.example.com")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .body(Full::default());
        send(request.expect("a request"))
    };
    for (n, (status, head)) in join_all((0..20).map(ask)).await.into_iter().enumerate() {
        let head = String::from_utf8_lossy(&head).into_owned();
        assert_eq!(status, StatusCode::OK, "{head}");
        assert!(head.starts_with(&format!("GET /{n}?q HTTP/1.1\r\n")), "{head}");
        assert!(head.contains(&format!("host: {NAME}\r\n")), "{head}");
        assert!(head.contains("cookie: a=1; b=2\r\n"), "{head}");
        assert!(!head.contains("elsewhere") && !head.contains(KEY), "{head}");
    }

    let bare = Request::get(at("/v1/sandboxes")).body(Full::default()).expect("a request");
    assert_eq!(send(bare).await.0, StatusCode::UNAUTHORIZED);
    let large =
        request(&at("/health")).header("x-large", "x".repeat(100_000)).body(Full::default());
    let refused = sender.clone().send_request(large.expect("a request")).await;
    let is_refused = refused.map_or(true, |answer| answer.status().is_client_error());
    assert!(is_refused, "a head of any size was taken");
    server.stop().await;
}

#[tokio::test]
async fn who_says_nothing_keeps_nobody_waiting() {
    let (server, trusted) = serve().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(&server.address).await.expect("a connection"));
    }
    let (mut sender, _tasks) = http2(&server, &trusted).await;
    let health = request(&format!("https://{NAME}/health")).body(Full::default());
    let answer = sender.send_request(health.expect("a request")).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    // Nor does the end of the server wait for them.
    server.stop().await;
}

#[tokio::test]
async fn who_forgets_tls_is_told_of_it() {
    let (server, _) = serve().await;
    let mut stream = TcpStream::connect(&server.address).await.expect("a connection");
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a request");
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer}");
}

#[tokio::test]
async fn a_certificate_is_replaced_without_a_connection_lost() {
    let (server, first) = serve().await;
    let (mut open, _tasks) = http2(&server, &first).await;
    let mut health = async || {
        let request = request(&format!("https://{NAME}/health")).body(Full::<Bytes>::default());
        open.send_request(request.expect("a request")).await.is_ok()
    };
    assert!(health().await);
    let dir = server.world.dir.path();
    let second = certify(dir);
    server.reload.apply(server.world.config(settings(dir))).await.expect("a reload");
    assert!(health().await, "the connection was lost");
    assert!(connect(&server, &first, b"h2").await.is_err(), "the first is still shown");
    assert!(connect(&server, &second, b"h2").await.is_ok());
}
