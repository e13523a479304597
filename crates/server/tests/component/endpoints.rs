//! The way into sandboxes.

use std::io::{Read, Write};

use http::Method;
use http_body_util::Full;
use osb_core::testkit::Line;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::harness::{TestServer, World, with};

/// Answers one request with its own head, from a thread.
pub(crate) fn echo(mut line: Line) {
    std::thread::spawn(move || {
        let head = read_head(&mut line);
        let length = head.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nlocation: /moved\r\nx-request-id: theirs\r\n\
             content-type: text/plain\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        line.write_all(answer.as_bytes()).ok();
        line.write_all(&head).ok();
    });
}

fn read_head(line: &mut Line) -> Vec<u8> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && line.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
    }
    head
}

#[tokio::test]
async fn every_port_has_an_endpoint_on_this_server() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let spec = server.world.runtime.spec(id.parse().expect("an id")).expect("a spec");
    let at = |rest: &str| format!("/v1/sandboxes/{id}/endpoints/{rest}");
    let endpoint = |port: u16| format!("{}/v1/sandboxes/{id}/proxy/{port}", server.address);

    let execd = server.get(&at("44772")).await;
    assert_eq!(execd.status, 200);
    let token = json!({"X-EXECD-ACCESS-TOKEN": spec.token.reveal()});
    assert_eq!(execd.json(), json!({"endpoint": endpoint(44772), "headers": token}));
    assert_eq!(server.get(&at("44772?use_server_proxy=true")).await.json(), execd.json());
    assert_eq!(server.get(&at("44772?use_server_proxy=false")).await.json(), execd.json());

    let egress = server.get(&at("18080")).await.json();
    assert_eq!(egress["endpoint"], endpoint(18080));
    let token = egress["headers"]["OPENSANDBOX-EGRESS-AUTH"].as_str().expect("a token");
    assert_eq!(token.len(), 32);
    assert_ne!(token, spec.token.reveal());

    assert_eq!(server.get(&at("8080")).await.json(), json!({"endpoint": endpoint(8080)}));
    let bare = server.get(&format!("/sandboxes/{id}/endpoints/8080")).await.json();
    assert_eq!(bare["endpoint"], format!("{}/sandboxes/{id}/proxy/8080", server.address));

    for port in ["0", "65536", "http", "-1", "+80", "%38"] {
        server.get(&at(port)).await.refusal(400, "DOCKER::INVALID_PORT");
    }
    let both = server.get(&at("80?expires=2000000000&use_server_proxy=true")).await;
    both.refusal(400, "SANDBOX::INVALID_PARAMETER");
    let unclear = server.get(&at("80?use_server_proxy=perhaps")).await;
    unclear.refusal(400, "SANDBOX::INVALID_PARAMETER");
}

#[tokio::test]
async fn the_host_comes_from_the_configuration_or_from_the_client_but_never_from_nonsense() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}/endpoints/80");
    for (host, expected) in [
        ("sandbox.example.com:8443", "sandbox.example.com:8443"),
        ("[::1]:80", "[::1]:80"),
        ("user@evil", server.address.as_str()),
        ("a b", server.address.as_str()),
    ] {
        let request = http::Request::builder()
            .uri(&path)
            .header("host", host)
            .header("open-sandbox-api-key", crate::harness::KEY)
            .body(Full::default())
            .expect("a request");
        let endpoint = server.send(request).await.json()["endpoint"].clone();
        assert_eq!(endpoint, format!("{expected}/v1/sandboxes/{id}/proxy/80"), "{host}");
    }

    let raw = osb_server::RawConfig {
        public_host: Some("https://public.example.com/base/".to_owned()),
        ..Default::default()
    };
    let server = World::new().serve_with(raw).await;
    let id = server.create().await;
    let endpoint = server.get(&format!("/v1/sandboxes/{id}/endpoints/80")).await.json();
    let expected = format!("public.example.com/base/v1/sandboxes/{id}/proxy/80");
    assert_eq!(endpoint["endpoint"], expected);
}

#[tokio::test]
async fn the_proxy_needs_no_key_and_passes_everything_but_ours() {
    let server = TestServer::start().await;
    let id = server.create().await;
    server.world.runtime.listen(id.parse().expect("an id"), 8080, echo);
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
        let method: Method = method.parse().expect("a method");
        let path = format!("/v1/sandboxes/{id}/proxy/8080/a%2Fb/../c?q=%20x&y=+");
        let request = server
            .request(method.clone(), &path)
            .header("authorization", "Bearer mine")
            .body(Full::default())
            .expect("a request");
        let answer = server.send(request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let head = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(
            head.starts_with(&format!("{method} /a%2Fb/../c?q=%20x&y=+ HTTP/1.1\r\n")),
            "{head}"
        );
        assert!(head.to_lowercase().contains("authorization: bearer mine"), "{head}");
        assert!(head.contains("x-forwarded-for: 127.0.0.1"), "{head}");
        assert!(!head.contains(crate::harness::KEY), "{head}");
        let moved = format!("/v1/sandboxes/{id}/proxy/8080/moved");
        assert_eq!(answer.header("location"), Some(moved.as_str()));
        assert_ne!(answer.header("x-request-id"), Some("theirs"));
    }
    for (path, seen) in [("", "GET / "), ("/", "GET / "), ("?x=1", "GET /?x=1 ")] {
        let path = format!("/sandboxes/{id}/proxy/8080{path}");
        let request = server.bare_request(Method::GET, &path).body(Full::default());
        let answer = server.send(request.expect("a request")).await;
        assert!(answer.body.starts_with(seen.as_bytes()), "{answer:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_said() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let at = |rest: &str| format!("/v1/sandboxes/{id}/proxy/{rest}");
    server.get(&at("9/x")).await.refusal(502, "BACKEND_CONNECTION_FAILED");
    server.get(&at("18080/policy")).await.refusal(401, "EGRESS::UNAUTHORIZED");
    server.get(&at("0/x")).await.refusal(400, "DOCKER::INVALID_PORT");
    server.get(&at("99999/x")).await.refusal(400, "DOCKER::INVALID_PORT");
    server.get(&at("http/x")).await.refusal(400, "DOCKER::INVALID_PORT");
}

#[tokio::test]
async fn a_sandbox_with_secure_access_asks_for_its_token_on_every_port() {
    let server = TestServer::start().await;
    let id = server.create_from(with(json!({"secureAccess": true}))).await;
    server.world.runtime.listen(id.parse().expect("an id"), 8080, echo);
    let endpoint = server.get(&format!("/v1/sandboxes/{id}/endpoints/8080")).await.json();
    let token = endpoint["headers"]["OpenSandbox-Secure-Access"].as_str().expect("a token");
    let execd = server.get(&format!("/v1/sandboxes/{id}/endpoints/44772")).await.json();
    assert_eq!(execd["headers"]["OpenSandbox-Secure-Access"], token);
    assert!(execd["headers"]["X-EXECD-ACCESS-TOKEN"].is_string());

    for port in [8080, 44772, 18080] {
        let path = format!("/v1/sandboxes/{id}/proxy/{port}/");
        server.get(&path).await.refusal(401, "MISSING_OR_INVALID_SECURE_ACCESS");
        let request = server.request(Method::GET, &path);
        let request = request.header("opensandbox-secure-access", "wrong").body(Full::default());
        let answer = server.send(request.expect("a request")).await;
        answer.refusal(401, "MISSING_OR_INVALID_SECURE_ACCESS");
    }
    let request = server
        .bare_request(Method::GET, &format!("/v1/sandboxes/{id}/proxy/8080/"))
        .header("opensandbox-secure-access", token)
        .body(Full::default());
    let answer = server.send(request.expect("a request")).await;
    assert_eq!(answer.status, 200);
    assert!(!String::from_utf8_lossy(&answer.body).contains(token), "the service saw the token");
}

#[tokio::test]
async fn bodies_of_any_size_pass_the_proxy() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let request = server
        .request(Method::POST, &format!("/v1/sandboxes/{id}/proxy/44772/files/upload"))
        .body(Full::from(vec![7; 3 << 20]))
        .expect("a request");
    assert_eq!(server.send(request).await.status, 200);
}

#[tokio::test]
async fn a_connection_can_change_its_protocol_through_the_proxy() {
    let server = TestServer::start().await;
    let id = server.create().await;
    server.world.runtime.listen(id.parse().expect("an id"), 8080, parrot);
    let stream = tokio::net::TcpStream::connect(&server.address).await.expect("a connection");
    change_protocol(&server, &id, stream).await;
}

/// Agrees to another protocol, in which it repeats a word.
pub(crate) fn parrot(mut line: Line) {
    std::thread::spawn(move || {
        read_head(&mut line);
        let agreed =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
        line.write_all(agreed.as_bytes()).ok();
        let mut word = [0; 4];
        line.read_exact(&mut word).ok();
        line.write_all(&word).ok();
    });
}

/// Asks a [`parrot`] for its protocol, and speaks it.
pub(crate) async fn change_protocol(
    server: &TestServer,
    id: &str,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) {
    let request = format!(
        "GET /v1/sandboxes/{id}/proxy/8080/ws HTTP/1.1\r\nhost: {}\r\n\
         connection: upgrade\r\nupgrade: echo\r\n\r\n",
        server.address
    );
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("an answer"));
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    stream.write_all(b"ping").await.expect("a word");
    let mut word = [0; 4];
    stream.read_exact(&mut word).await.expect("its echo");
    assert_eq!(&word, b"ping");
}
