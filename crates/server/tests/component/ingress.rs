//! Ports of sandboxes under signed addresses, under hosts of their own, and by a header.

use std::time::Duration;

use http::Method;
use http_body_util::Full;
use osb_api::SandboxId;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    endpoints::echo,
    harness::{Answer, KEY, TestServer, World, with},
};

const DOMAIN: &str = "boxes.example.com";

async fn with_domain() -> TestServer {
    let raw =
        osb_server::RawConfig { gateway_domain: Some(DOMAIN.to_owned()), ..Default::default() };
    World::new().serve_with(raw).await
}

/// A sandbox that asks for its token, with an echo on port 8080.
async fn guarded(server: &TestServer) -> String {
    let id = server.create_from(with(json!({"secureAccess": true, "timeout": null}))).await;
    server.world.runtime.listen(id.parse().expect("an id"), 8080, echo);
    id
}

/// Asks without any key or token.
async fn ask(server: &TestServer, host: &str, path: &str) -> Answer {
    ask_with(server, host, path, &[]).await
}

async fn ask_with(server: &TestServer, host: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = http::Request::builder().uri(path).header("host", host);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    server.send(request.body(Full::default()).expect("a request")).await
}

fn text(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Everything that comes back for these bytes.
async fn raw(server: &TestServer, request: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).await.expect("a connection");
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut answer = Vec::new();
    // A connection that is broken has said what it had to say.
    stream.read_to_end(&mut answer).await.ok();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Seconds from now on the server's clock, which starts with 2026.
fn in_seconds(seconds: u64) -> u64 {
    1_767_225_600 + seconds
}

#[tokio::test]
async fn a_signed_address_opens_one_port_until_its_moment() {
    let server = TestServer::start().await;
    let id = guarded(&server).await;
    let at = |port: u16, query: &str| format!("/v1/sandboxes/{id}/endpoints/{port}?{query}");
    let expires = in_seconds(60);
    let signed = server.get(&at(8080, &format!("expires={expires}"))).await.json();
    let same = format!("use_server_proxy=false&expires={expires}");
    assert_eq!(server.get(&at(8080, &same)).await.json(), signed);
    assert!(signed.get("headers").is_none(), "it needs no header: {signed}");
    let endpoint = signed["endpoint"].as_str().expect("an endpoint").to_owned();
    let path = endpoint.strip_prefix(&server.address).expect("on this server").to_owned();
    let base = format!("/v1/sandboxes/{id}/proxy/8080-");
    let signature = path.strip_prefix(&base).expect("below the proxy").to_owned();

    let seen = text(&ask(&server, &server.address, &format!("{path}/a%2Fb?q=1")).await);
    assert!(seen.starts_with("GET /a%2Fb?q=1 HTTP/1.1\r\n"), "{seen}");
    assert!(!seen.contains(&signature), "the service sees the signature: {seen}");
    let answer = ask(&server, &server.address, &path).await;
    assert_eq!(answer.header("location"), Some(format!("{path}/moved").as_str()));

    let (when, mac) = signature.split_once('-').expect("a signature");
    let other = server.create_from(with(json!({"secureAccess": true}))).await;
    let changed = if mac.ends_with('a') { "b" } else { "a" };
    for wrong in [
        format!("/v1/sandboxes/{id}/proxy/8081-{signature}/"),
        format!("/v1/sandboxes/{id}/proxy/44772-{signature}/ping"),
        format!("/v1/sandboxes/{other}/proxy/8080-{signature}/"),
        format!("{base}{when}0-{mac}/"),
        format!("{base}{when}-{}/", &mac[..mac.len() - 1]),
        format!("{base}{when}-{}{changed}/", &mac[..mac.len() - 1]),
        format!("{base}{when}-{}/", &mac[..8]),
        format!("{base}{when}-0/"),
        format!("{base}{when}-{mac}{mac}/"),
    ] {
        let answer = ask(&server, &server.address, &wrong).await;
        answer.refusal(401, "ENDPOINT::SIGNATURE_INVALID");
    }
    server.world.clock.advance(Duration::from_mins(1));
    assert_eq!(ask(&server, &server.address, &path).await.status, 200, "until then");
    server.world.clock.advance(Duration::from_secs(1));
    let late = ask(&server, &server.address, &path).await;
    late.refusal(401, "ENDPOINT::SIGNATURE_EXPIRED");

    let past = in_seconds(61).to_string();
    for expires in ["", "0", "-1", "soon", "1e9", "99999999999999", "18446744073709551616", &past] {
        let answer = server.get(&at(8080, &format!("expires={expires}"))).await;
        answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
}

#[tokio::test]
async fn a_signed_address_outlives_the_server_and_reveals_no_token() {
    let server = TestServer::start().await;
    let id = guarded(&server).await;
    let expires = in_seconds(600);
    let at = |port: u16| format!("/v1/sandboxes/{id}/endpoints/{port}?expires={expires}");
    let signed = server.get(&at(8080)).await.json()["endpoint"].clone();
    for (port, header) in [(44772, "X-EXECD-ACCESS-TOKEN"), (18080, "OPENSANDBOX-EGRESS-AUTH")] {
        let answer = server.get(&at(port)).await.json();
        let token = answer["headers"][header].as_str().expect("a token");
        assert_eq!(answer["headers"].as_object().expect("headers").len(), 1, "{answer}");
        assert!(!answer["endpoint"].to_string().contains(token), "{answer}");
    }
    let policy = server.get(&at(18080)).await.json()["endpoint"].clone();
    let policy = policy.as_str().and_then(|at| at.strip_prefix(&server.address)).expect("ours");
    let refused = ask(&server, &server.address, &format!("{policy}/policy")).await;
    refused.refusal(401, "EGRESS::UNAUTHORIZED");

    let path = signed.as_str().and_then(|at| at.strip_prefix(&server.address)).expect("ours");
    let path = path.to_owned();
    let server = server.stop().await.serve().await;
    assert_eq!(ask(&server, &server.address, &path).await.status, 200);
}

#[tokio::test]
async fn a_port_has_a_host_of_its_own() {
    let server = with_domain().await;
    let id = guarded(&server).await;
    let plain = server.create_from(with(json!({"timeout": null}))).await;
    server.world.runtime.listen(plain.parse().expect("an id"), 8080, echo);
    for host in [format!("8080-{plain}.{DOMAIN}"), format!("{plain}-8080.{DOMAIN}:8443")] {
        // Every path is the service's, those of the server as well.
        for path in ["/", "/v1/sandboxes?a=%2F", "/health", "//x/..%2f", "/../openapi.json"] {
            let answer = ask(&server, &host, path).await;
            let seen = text(&answer);
            assert!(seen.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{seen}");
            assert!(seen.contains(&format!("host: {host}\r\n")), "{seen}");
            assert_eq!(answer.header("location"), Some("/moved"));
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }

    let endpoint = format!("/v1/sandboxes/{id}/endpoints/8080");
    let token = server.get(&endpoint).await.json();
    let expected = format!("{}/v1/sandboxes/{id}/proxy/8080", server.address);
    assert_eq!(token["endpoint"], expected, "without expires it is as ever");
    let token = token["headers"]["OpenSandbox-Secure-Access"].as_str().expect("a token").to_owned();
    let host = format!("8080-{id}.{DOMAIN}");
    let refused = ask_with(&server, &host, "/", &[("open-sandbox-api-key", KEY)]).await;
    refused.refusal(401, "MISSING_OR_INVALID_SECURE_ACCESS");
    let seen = text(&ask_with(&server, &host, "/", &[("opensandbox-secure-access", &token)]).await);
    assert!(!seen.contains(&token), "{seen}");

    let signed = server.get(&format!("{endpoint}?expires={}", in_seconds(60))).await.json();
    let host = signed["endpoint"].as_str().expect("an endpoint").to_owned();
    let label = host.strip_suffix(&format!(".{DOMAIN}")).expect("below the domain");
    assert!(label.len() <= 63 && !label.contains('.'), "{label}");
    assert_eq!(ask(&server, &host, "/static/app.js").await.status, 200);
    assert_eq!(ask(&server, &host.to_uppercase(), "/").await.status, 200);
    let cut = format!("{}.{DOMAIN}", &label[..label.len() - 1]);
    ask(&server, &cut, "/").await.refusal(401, "ENDPOINT::SIGNATURE_INVALID");
    server.world.clock.advance(Duration::from_secs(61));
    ask(&server, &host, "/").await.refusal(401, "ENDPOINT::SIGNATURE_EXPIRED");
}

#[tokio::test]
async fn a_host_below_the_domain_never_reaches_the_server_itself() {
    let server = with_domain().await;
    let id = server.create().await;
    let key = [("open-sandbox-api-key", KEY)];
    for host in ["x", "80-x", "a.b", "www", &format!("0-{id}"), &id] {
        let answer = ask_with(&server, &format!("{host}.{DOMAIN}"), "/v1/sandboxes", &key).await;
        answer.refusal(404, "GENERAL::NOT_FOUND");
    }
    let gone = format!("8080-{}.{DOMAIN}", SandboxId::random());
    let answer = ask_with(&server, &gone, "/health", &key).await;
    answer.refusal(404, "DOCKER::SANDBOX_NOT_FOUND");
    for host in [DOMAIN, "localhost", "api.example.com", &server.address] {
        assert_eq!(ask_with(&server, host, "/v1/sandboxes", &key).await.status, 200, "{host}");
    }

    let port = format!("8080-{id}.{DOMAIN}");
    let dead = ask(&server, &port, "/").await;
    dead.refusal(502, "BACKEND_CONNECTION_FAILED");
    // What the request line says wins, and two hosts are none.
    let close = "connection: close\r\n\r\n";
    for (head, status) in [
        (format!("GET http://{port}/health HTTP/1.1\r\nhost: localhost\r\n"), " 502 "),
        (format!("GET http://localhost/health HTTP/1.1\r\nhost: {port}\r\n"), " 200 "),
        (format!("GET /health HTTP/1.1\r\nhost: localhost\r\nhost: {port}\r\n"), " 400 "),
        (format!("GET /health HTTP/1.1\r\nhost: {port}\r\nHost: localhost\r\n"), " 400 "),
        (format!("GET /health HTTP/1.1\r\nhost: {port}:80:90\r\n"), " 400 "),
        (format!("GET /health HTTP/1.1\r\nhost: user@{port}\r\n"), " 400 "),
        (format!("GET /health HTTP/1.1\r\nhost: {port} localhost\r\n"), " 400 "),
        ("GET /health HTTP/1.0\r\n".to_owned(), " 200 "),
    ] {
        let answer = raw(&server, &format!("{head}{close}")).await;
        let line = answer.lines().next().unwrap_or_default();
        assert!(line.contains(status), "{head}{answer}");
    }
}

#[tokio::test]
async fn without_a_domain_hosts_mean_nothing() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let host = format!("8080-{id}.{DOMAIN}");
    let answer = ask_with(&server, &host, "/v1/sandboxes", &[("open-sandbox-api-key", KEY)]).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_header_names_a_port() {
    let server = with_domain().await;
    let id = guarded(&server).await;
    let endpoint = format!("/v1/sandboxes/{id}/endpoints/8080");
    let token = server.get(&endpoint).await.json()["headers"]["OpenSandbox-Secure-Access"].clone();
    let token = token.as_str().expect("a token").to_owned();
    let to = format!("{id}-8080");
    let headers = [("opensandbox-ingress-to", to.as_str()), ("opensandbox-secure-access", &token)];
    let seen = text(&ask_with(&server, &server.address, "/v1/sandboxes?x", &headers).await);
    assert!(seen.starts_with("GET /v1/sandboxes?x HTTP/1.1\r\n"), "{seen}");
    for ours in ["ingress-to", &token] {
        assert!(!seen.contains(ours), "the service saw {ours}: {seen}");
    }
    let refused = ask_with(&server, &server.address, "/", &headers[..1]).await;
    refused.refusal(401, "MISSING_OR_INVALID_SECURE_ACCESS");

    let signed = server.get(&format!("{endpoint}?expires={}", in_seconds(60))).await.json();
    let label = signed["endpoint"].as_str().and_then(|host| host.split('.').next()).expect("one");
    let signed = [("opensandbox-ingress-to", label)];
    assert_eq!(ask_with(&server, &server.address, "/", &signed).await.status, 200);

    for bad in ["", "x", &id, &format!("{id}-0"), &format!("{id}-http"), &to.to_uppercase()] {
        let bad = [("opensandbox-ingress-to", bad), ("open-sandbox-api-key", KEY)];
        let answer = ask_with(&server, &server.address, "/v1/sandboxes", &bad).await;
        answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
    let twice = [headers[0], headers[0], headers[1]];
    let answer = ask_with(&server, &server.address, "/", &twice).await;
    answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    let elsewhere = format!("81-{id}.{DOMAIN}");
    let answer = ask_with(&server, &elsewhere, "/", &headers).await;
    answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    let agreed = format!("8080-{id}.{DOMAIN}");
    assert_eq!(ask_with(&server, &agreed, "/", &headers).await.status, 200);
}

#[tokio::test]
async fn without_a_key_a_header_is_heard_from_this_machine_only() {
    let server = World::new().serve_openly().await;
    let id = server.create().await;
    server.world.runtime.listen(id.parse().expect("an id"), 8080, echo);
    let to = format!("{id}-8080");
    let header = [("opensandbox-ingress-to", to.as_str())];
    assert_eq!(ask_with(&server, &server.address, "/", &header).await.status, 200);
    let rebound = ask_with(&server, "evil.example.com", "/", &header).await;
    rebound.refusal(400, "SANDBOX::INVALID_PARAMETER");
}

#[tokio::test]
async fn a_host_takes_web_sockets() {
    let server = with_domain().await;
    let id = server.create().await;
    server.world.runtime.listen(id.parse().expect("an id"), 6080, |mut line| {
        std::thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && line.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let agreed = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                          upgrade: websocket\r\n\r\n";
            line.write_all(agreed.as_bytes()).ok();
            let mut word = [0; 4];
            line.read_exact(&mut word).ok();
            line.write_all(&word).ok();
        });
    });
    let signed = format!("/v1/sandboxes/{id}/endpoints/6080?expires={}", in_seconds(60));
    let host = server.get(&signed).await.json()["endpoint"].clone();
    let host = host.as_str().expect("a host");
    let answer = raw(
        &server,
        &format!(
            "GET /websockify HTTP/1.1\r\nhost: {host}\r\norigin: https://{host}\r\n\
             connection: Upgrade\r\nupgrade: websocket\r\n\r\nping"
        ),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("\r\n\r\nping"), "{answer}");
}

#[tokio::test]
async fn preflights_are_the_services_own() {
    let server = with_domain().await;
    let id = server.create().await;
    server.world.runtime.listen(id.parse().expect("an id"), 8080, echo);
    let request = http::Request::builder()
        .method(Method::OPTIONS)
        .uri("/")
        .header("host", format!("8080-{id}.{DOMAIN}"))
        .header("origin", "https://elsewhere.example")
        .header("access-control-request-method", "PUT")
        .body(Full::default())
        .expect("a request");
    let answer = server.send(request).await;
    assert!(text(&answer).starts_with("OPTIONS / "));
    assert_eq!(answer.header("access-control-allow-origin"), None);
}
