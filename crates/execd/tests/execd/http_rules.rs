//! What holds for every route.

use http::{Method, StatusCode, header};
use osb_api::{codes, headers};

use crate::daemon::{Daemon, error, events, outcome, request};

const ROUTES: &[(Method, &str)] = &[
    (Method::GET, "/ping"),
    (Method::POST, "/command"),
    (Method::DELETE, "/command?id=x"),
    (Method::GET, "/command/status/x"),
    (Method::GET, "/command/x/logs"),
    (Method::POST, "/session"),
    (Method::POST, "/session/x/run"),
    (Method::DELETE, "/session/x"),
    (Method::POST, "/code"),
    (Method::DELETE, "/code?id=x"),
    (Method::POST, "/code/context"),
    (Method::GET, "/code/contexts"),
    (Method::DELETE, "/code/contexts"),
    (Method::GET, "/code/contexts/x"),
    (Method::DELETE, "/code/contexts/x"),
    (Method::GET, "/files/info"),
    (Method::DELETE, "/files"),
    (Method::POST, "/files/permissions"),
    (Method::POST, "/files/mv"),
    (Method::GET, "/files/search"),
    (Method::POST, "/files/replace"),
    (Method::POST, "/files/upload"),
    (Method::GET, "/files/download"),
    (Method::GET, "/files/watch"),
    (Method::GET, "/directories/list"),
    (Method::POST, "/directories"),
    (Method::DELETE, "/directories"),
    (Method::GET, "/metrics"),
    (Method::GET, "/metrics/watch"),
    (Method::GET, "/work"),
    (Method::POST, "/pty"),
    (Method::GET, "/pty/x"),
    (Method::DELETE, "/pty/x"),
    (Method::GET, "/pty/x/ws"),
    (Method::GET, "/proxy/1"),
    (Method::GET, "/proxy/1/"),
    (Method::PUT, "/proxy/1/a/b"),
    (Method::GET, "/proxy/44772/ping"),
    (Method::GET, "/v1/isolated/capabilities"),
    (Method::POST, "/v1/isolated/session"),
    (Method::GET, "/v1/filesystem/0/0/files/info"),
    (Method::GET, "/no/such/route"),
];

#[tokio::test]
async fn without_the_token_every_route_is_closed() {
    let daemon = Daemon::with(&[], &[("EXECD_ACCESS_TOKEN", "secret")]);
    for (method, path) in ROUTES {
        for wrong in [None, Some("wrong")] {
            let mut request = request(method.clone(), path, "");
            if let Some(wrong) = wrong {
                request.headers_mut().insert(headers::EXECD_TOKEN, wrong.parse().unwrap());
            }
            let (status, body) = error(daemon.send(request).await).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path}");
            assert_eq!(body.code, codes::UNAUTHORIZED);
        }
    }
}

#[tokio::test]
async fn the_token_opens_and_commands_do_not_see_it() {
    for daemon in [
        Daemon::with(&["--access-token", "secret"], &[]),
        Daemon::with(&[], &[("EXECD_ACCESS_TOKEN", "secret")]),
    ] {
        let mut asked = request(Method::POST, "/command", r#"{"command":"! env | grep secret"}"#);
        asked.headers_mut().insert(headers::EXECD_TOKEN, "secret".parse().unwrap());
        assert_eq!(outcome(&events(daemon.send(asked).await).await), "0");
    }
}

#[tokio::test]
async fn every_documented_route_exists_and_every_error_has_a_body() {
    let daemon = Daemon::start();
    for (method, path) in ROUTES {
        let response = daemon.send(request(method.clone(), path, "")).await;
        if response.status().is_success() {
            continue;
        }
        let (status, body) = error(response).await;
        let unknown = path.starts_with("/no/");
        assert_eq!(body.code == codes::NOT_FOUND, unknown, "{method} {path}: {body:?}");
        assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_apart_from_a_wrong_path() {
    let daemon = Daemon::start();
    for (method, path) in ROUTES.iter().filter(|(_, path)| path.starts_with("/files")) {
        let (status, body) = error(daemon.send(request(Method::PATCH, path, "")).await).await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        assert_eq!(body.code, codes::METHOD_NOT_ALLOWED);
    }
}

#[tokio::test]
async fn an_empty_answer_says_that_it_is_empty() {
    let daemon = Daemon::start();
    for (method, path) in [
        (Method::GET, "/ping"),
        (Method::GET, "/proxy/44772/ping"),
        (Method::DELETE, "/files?path=/no/such/file"),
    ] {
        let response = daemon.send(request(method, path, "")).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(response.headers()[header::CONTENT_LENGTH], "0", "{path}");
    }
}

#[tokio::test]
async fn everything_is_also_behind_the_proxy_to_its_own_port() {
    let daemon = Daemon::start();
    let asked = request(Method::POST, "/proxy/44772/command", r#"{"command":"exit 4"}"#);
    assert_eq!(outcome(&events(daemon.send(asked).await).await), "4");
    let response = daemon.get("/proxy/44772/files/info?path=/tmp").await;
    assert_eq!(response.status(), StatusCode::OK);
}
