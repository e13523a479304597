//! Everything that must be refused, and that nothing is left after it.

use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::harness::{KEY, TestServer, World, minimal, with};

async fn refused(server: &TestServer, body: Value, code: &str) -> String {
    let message = server.post("/v1/sandboxes", Some(body)).await.refusal(400, code);
    server.assert_empty().await;
    message
}

#[tokio::test]
async fn an_unknown_image_is_refused() {
    let server = TestServer::start().await;
    let body = with(json!({"image": {"uri": "nobody:knows"}}));
    let message = refused(&server, body, "SANDBOX::IMAGE_NOT_FOUND").await;
    assert!(message.contains("nobody:knows") && message.contains("use host"), "{message}");
}

#[tokio::test]
async fn wrong_types_and_missing_fields_are_refused() {
    let server = TestServer::start().await;
    for changes in [
        json!({"image": "host"}),
        json!({"image": {}}),
        json!({"image": {"uri": 7}}),
        json!({"image": {"uri": " "}}),
        json!({"image": null}),
        json!({"image": {"uri": "white space"}}),
        json!({"timeout": "soon"}),
        json!({"timeout": 60.5}),
        json!({"env": ["A=B"]}),
        json!({"env": {"A": 1}}),
        json!({"env": {"A=B": "x"}}),
        json!({"env": {"": "x"}}),
        json!({"env": {"A": "x\u{0}"}}),
        json!({"env": {"OPENSANDBOX_LIFECYCLE": "{}"}}),
        json!({"env": {"OPENSANDBOX_EGRESS_TOKEN": "x"}}),
        json!({"metadata": {"a": 1}}),
        json!({"resourceLimits": null}),
        json!({"resourceLimits": {"cpu": 1}}),
        json!({"resourceLimits": {"cpu": "lots"}}),
        json!({"resourceLimits": {"memory": "-1Gi"}}),
        json!({"resourceLimits": {"gpu": "1"}}),
        json!({"resourceLimits": {"gpu": "1"}}),
        json!({"resourceRequests": {"memory": "much"}}),
        json!({"secureAccess": "certainly"}),
        json!({"platform": {"os": "linux"}}),
        json!({"platform": {"os": "plan9", "arch": "amd64"}}),
        json!({"platform": {"os": "windows", "arch": "amd64"}}),
        json!({"extensions": {"access.renew.extend.seconds": "1"}}),
    ] {
        refused(&server, with(changes), "SANDBOX::INVALID_PARAMETER").await;
    }
    for entrypoint in [json!(null), json!([]), json!([""]), json!(["a 'b"]), json!(["a\u{0}"])] {
        let body = with(json!({"entrypoint": entrypoint}));
        refused(&server, body, "DOCKER::INVALID_ENTRYPOINT").await;
    }
    refused(&server, json!([]), "SANDBOX::INVALID_PARAMETER").await;
}

#[tokio::test]
async fn a_timeout_is_a_minute_at_least_and_a_day_at_most() {
    let server = TestServer::start().await;
    for timeout in [json!(0), json!(-1), json!(59), json!(86_401), json!(i64::MAX), json!(1e30)] {
        refused(&server, with(json!({"timeout": timeout})), "SANDBOX::INVALID_PARAMETER").await;
    }
    for timeout in [60, 86_400] {
        server.create_from(with(json!({"timeout": timeout}))).await;
    }
}

#[tokio::test]
async fn metadata_that_cannot_be_a_label_is_refused() {
    let server = TestServer::start().await;
    for (key, value) in [("white space", "x"), ("a", "-"), ("opensandbox.io/id", "x"), ("", "x")] {
        let body = with(json!({"metadata": {key: value}}));
        refused(&server, body, "SANDBOX::INVALID_METADATA_LABEL").await;
    }
    let many: Value = (0..300).map(|n| (format!("k{n}"), json!(""))).collect();
    let body = with(json!({"metadata": many}));
    refused(&server, body, "SANDBOX::INVALID_METADATA_LABEL").await;
}

#[tokio::test]
async fn what_is_not_supported_yet_is_said_and_not_ignored() {
    let server = TestServer::start().await;
    let bucket =
        json!({"bucket": "b", "endpoint": "e", "accessKeyId": "i", "accessKeySecret": "s"});
    let volume = json!({"name": "v", "mountPath": "/v", "ossfs": bucket});
    for (changes, code) in [
        (json!({"volumes": [volume]}), "VOLUME::UNSUPPORTED_BACKEND"),
        (json!({"lifecycle": {"preStart": {"command": ["x"]}}}), "SANDBOX::API_NOT_SUPPORTED"),
        (json!({"lifecycle": {"prestart": {}}}), "SANDBOX::INVALID_PARAMETER"),
        (json!({"extensions": {"poolRef": "*"}}), "SANDBOX::UNSUPPORTED_POOL_REF"),
        (
            json!({"image": {"uri": "host", "auth": {"username": "u", "password": "p"}}}),
            "SANDBOX::API_NOT_SUPPORTED",
        ),
    ] {
        refused(&server, with(changes), code).await;
    }
}

#[tokio::test]
async fn a_body_that_is_not_json_is_refused_with_its_position() {
    let server = TestServer::start().await;
    for (body, kind) in [
        (r#"{"image": "#, "application/json"),
        ("", "application/json"),
        ("image=host", "application/x-www-form-urlencoded"),
        (r#"{"image": {"uri": "host"}}"#, "text/plain"),
        ("\u{1}\u{2}", "application/octet-stream"),
    ] {
        let request = server
            .request(Method::POST, "/v1/sandboxes")
            .header("content-type", kind)
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        let message = server.send(request).await.refusal(400, "SANDBOX::INVALID_PARAMETER");
        if kind == "application/json" {
            assert!(message.contains("line 1 column"), "{message}");
        }
    }
    server.assert_empty().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let server = TestServer::start().await;
    let large = with(json!({"env": {"A": "x".repeat(2 << 20)}}));
    server.post("/v1/sandboxes", Some(large)).await.refusal(413, "GENERAL::BODY_TOO_LARGE");
    server.assert_empty().await;

    let raw = osb_server::RawConfig { max_body_bytes: Some(10), ..Default::default() };
    let server = World::new().serve_with(raw).await;
    let answer = server.post("/v1/sandboxes", Some(minimal())).await;
    answer.refusal(413, "GENERAL::BODY_TOO_LARGE");
    server.assert_empty().await;
}

#[tokio::test]
async fn without_the_right_key_nothing_is_done() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let long = "k".repeat(1000);
    for (method, path) in [
        (Method::GET, "/v1/sandboxes".to_owned()),
        (Method::POST, "/sandboxes".to_owned()),
        (Method::DELETE, format!("/v1/sandboxes/{id}")),
        (Method::GET, format!("/v1/sandboxes/{id}/endpoints/44772")),
        (Method::GET, format!("/v1/sandboxes/{id}/proxy/http/")),
        (Method::GET, "/v1/snapshots".to_owned()),
        (Method::GET, "/v1/volumes".to_owned()),
        (Method::DELETE, "/volumes/a".to_owned()),
        (Method::GET, "/no/such/path".to_owned()),
        (Method::POST, "/v1/metrics/events".to_owned()),
    ] {
        let request = server.bare_request(method.clone(), &path);
        let request = request.body(Full::default()).expect("a request");
        server.send(request).await.refusal(401, "MISSING_API_KEY");
        for wrong in ["", "wrong", &KEY[1..], &KEY.to_uppercase(), &long] {
            let request = server
                .bare_request(method.clone(), &path)
                .header("open-sandbox-api-key", wrong)
                .body(Full::default())
                .expect("a request");
            server.send(request).await.refusal(401, "INVALID_API_KEY");
        }
    }
    assert_eq!(server.state(&id).await, "Running");
}

#[tokio::test]
async fn an_unknown_sandbox_is_not_found_by_any_route() {
    let server = TestServer::start().await;
    let ids = ["00000000-0000-4000-8000-000000000000", "x", "%2e%2e", "%ff"];
    for id in ids {
        for (method, rest, body) in [
            (Method::GET, "", None),
            (Method::DELETE, "", None),
            (Method::PATCH, "/metadata", Some(json!({}))),
            (Method::POST, "/pause", None),
            (Method::POST, "/resume", None),
            (Method::POST, "/renew-expiration", Some(json!({"expiresAt": "2030-01-01T00:00:00Z"}))),
            (Method::GET, "/endpoints/8080", None),
            (Method::GET, "/proxy/8080/x", None),
        ] {
            let answer = server.call(method, &format!("/v1/sandboxes/{id}{rest}"), body).await;
            answer.refusal(404, "DOCKER::SANDBOX_NOT_FOUND");
        }
    }
}
