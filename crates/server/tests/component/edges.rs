//! What is true of every answer.

use std::sync::Arc;

use http::Method;
use http_body_util::Full;
use osb_core::testkit::{FakeRuntime, TestClock};
use osb_server::{ApiKeySource, AuthMode, Config, Overrides, RawConfig, Server, World as Driven};
use serde_json::json;

use crate::harness::{TestServer, World};

/// The id of no sandbox.
const STRANGER: &str = "00000000-0000-4000-8000-000000000000";

#[tokio::test]
async fn the_server_speaks_of_itself_without_a_key() {
    let server = TestServer::start().await;
    for (path, expected) in [
        ("/health", json!({"status": "healthy"})),
        ("/version", json!({"version": env!("CARGO_PKG_VERSION")})),
    ] {
        let request = server.bare_request(Method::GET, path).body(Full::default());
        let answer = server.send(request.expect("a request")).await;
        assert_eq!((answer.status, answer.json()), (200, expected));
    }
}

#[tokio::test]
async fn everything_in_the_document_is_answered() {
    let server = TestServer::start().await;
    let request = server.bare_request(Method::GET, "/openapi.json").body(Full::default());
    let document = server.send(request.expect("a request")).await.json();
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(document["components"]["schemas"]["CreateSandboxRequest"].is_object());

    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.contains_key("/sandboxes/{sandboxId}/endpoints/{port}"));
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().expect("operations") {
            let base = operation.get("servers").unwrap_or_else(|| &document["servers"]);
            let base = base[0]["url"].as_str().expect("a place").trim_end_matches('/');
            let path = path.replace("{sandboxId}", STRANGER).replace("{port}", "44772");
            let method = method.to_uppercase().parse().expect("a method");
            let answer = server.call(method, &format!("{base}{path}"), Some(json!({}))).await;

            let status = answer.status.to_string();
            let known = operation["responses"].as_object().expect("responses");
            assert!(known.contains_key(&status), "{path} may not answer {answer:?}");
            if answer.status >= 400 {
                assert_ne!(answer.json()["code"], "GENERAL::NOT_FOUND", "{path}");
            }
        }
    }
}

#[tokio::test]
async fn what_a_client_measured_is_taken() {
    let server = TestServer::start().await;
    let event = json!({
        "eventType": "sandbox.create", "createDurationMs": 12, "success": true, "image": null,
    });
    let answer = server.post("/v1/metrics/events", Some(event)).await;
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    let answer = server.post("/v1/metrics/events", Some(json!({"eventType": "x"}))).await;
    answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    server.post("/metrics/events", Some(json!({}))).await.refusal(404, "GENERAL::NOT_FOUND");
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_answered_in_json() {
    let server = TestServer::start().await;
    for path in ["/", "/v1", "/v1/", "/v1/health", "/v1/sandboxes/", "/v2/sandboxes", "/%ff"] {
        server.get(path).await.refusal(404, "GENERAL::NOT_FOUND");
    }
    let answer = server.call(Method::PUT, "/v1/sandboxes", None).await;
    answer.refusal(405, "GENERAL::METHOD_NOT_ALLOWED");
    let allowed = answer.header("allow").expect("Allow");
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
}

#[tokio::test]
async fn routes_of_later_versions_say_so() {
    let server = TestServer::start().await;
    for (method, path) in [(Method::POST, "/v1/pools"), (Method::PUT, "/v1/pools/x")] {
        let answer = server.call(method, path, None).await;
        answer.refusal(501, "KUBERNETES::POOL_NOT_SUPPORTED");
    }
}

#[tokio::test]
async fn a_request_keeps_its_id_if_it_is_sane() {
    let server = TestServer::start().await;
    let long = "x".repeat(129);
    for (sent, kept) in [(" my-id_1 ", true), ("bad id", false), ("a\"b", false), (&long, false)] {
        let request = server.request(Method::GET, "/nowhere").header("x-request-id", sent);
        let answer = server.send(request.body(Full::default()).expect("a request")).await;
        let id = answer.header("x-request-id").expect("an id");
        if kept {
            assert_eq!(id, sent.trim());
        } else {
            assert_eq!(id.len(), 32, "{id}");
        }
    }
}

#[tokio::test]
async fn browsers_are_let_in_before_they_have_a_key() {
    let server = TestServer::start().await;
    let preflight = server
        .bare_request(Method::OPTIONS, "/v1/sandboxes")
        .header("origin", "https://console.example.com")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "open-sandbox-api-key")
        .body(Full::default());
    let answer = server.send(preflight.expect("a request")).await;
    assert_eq!(answer.status, 200);
    for (name, value) in [
        ("access-control-allow-origin", "https://console.example.com"),
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-methods", "POST"),
        ("access-control-allow-headers", "open-sandbox-api-key"),
        ("access-control-max-age", "600"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    let request = server.request(Method::GET, "/v1/sandboxes");
    let request = request.header("origin", "https://a.example").body(Full::default());
    let answer = server.send(request.expect("a request")).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://a.example"));
    assert_eq!(answer.header("access-control-expose-headers"), Some("open-sandbox-origin"));
    let plain = server.get("/v1/sandboxes").await;
    assert_eq!(plain.header("vary").map(str::to_lowercase).as_deref(), Some("origin"));
}

#[tokio::test]
async fn the_key_is_made_at_the_first_start_and_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let start = async |auth| {
        let overrides = Overrides {
            listen: Some("127.0.0.1:0".parse().expect("an address")),
            data_dir: Some(dir.path().to_owned()),
            auth,
            ..Overrides::default()
        };
        let config = Config::new(RawConfig::default(), overrides).expect("a configuration");
        let listener = Server::listen(&config).await.expect("a free port");
        let (runtime, clock) = (Arc::new(FakeRuntime::new()), Arc::new(TestClock::default()));
        Server::start(listener, config, Driven { runtime, images: None, clock })
            .await
            .expect("a server")
    };
    let server = start(AuthMode::Key).await;
    let path = dir.path().join("api-key");
    assert_eq!(*server.api_key_source(), ApiKeySource::Created(path.clone()));
    drop(server);
    assert_eq!(*start(AuthMode::Key).await.api_key_source(), ApiKeySource::File(path));
    assert_eq!(*start(AuthMode::Off).await.api_key_source(), ApiKeySource::Off);
}

#[tokio::test]
async fn without_a_key_the_server_is_no_open_door_for_browsers() {
    let server = World::new().serve_openly().await;
    let ask = async |host: &str, (name, value): (&str, &str)| {
        let request = http::Request::builder()
            .uri("/v1/sandboxes")
            .header("host", host)
            .header(name, value)
            .body(Full::default());
        server.send(request.expect("a request")).await
    };
    let program = ("user-agent", "a program");
    for host in ["localhost:8080", "127.0.0.1:8080", "[::1]"] {
        let answer = ask(host, program).await;
        assert_eq!(answer.status, 200, "{host}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    for host in ["evil.example", "localhost.evil.example", "192.0.2.1"] {
        ask(host, program).await.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
    // A page that a sandbox serves through the proxy has the server's own origin.
    for page in [
        ("origin", "https://evil.example"),
        ("origin", "http://localhost:8080"),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-site", "cross-site"),
    ] {
        ask("localhost:8080", page).await.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
    assert_eq!(ask("localhost:8080", ("sec-fetch-site", "none")).await.status, 200);
}

#[tokio::test]
async fn numbers_are_told_to_those_who_have_the_key() {
    let server = TestServer::start().await;
    let answer = server.get("/metrics").await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.header("content-type").expect("a type").starts_with("text/plain; version=0.0.4")
    );
    let text = String::from_utf8(answer.body.to_vec()).expect("text");
    assert!(text.contains("opensandbox_sandboxes{phase=\"Running\"} 0\n"), "{text}");
    let request = server.bare_request(Method::GET, "/metrics").body(Full::default());
    let answer = server.send(request.expect("a request")).await;
    answer.refusal(401, "MISSING_API_KEY");
}
