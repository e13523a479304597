//! Settings that change while the server runs.

use http::{Method, Request};
use http_body_util::Full;
use osb_server::{KeyConfig, Operator, RawConfig};
use secrecy::SecretString;
use serde_json::json;

use crate::harness::{TestServer, World, with};

async fn status(server: &TestServer, key: &str) -> u16 {
    let request = Request::get("/v1/sandboxes")
        .header("host", &server.address)
        .header("open-sandbox-api-key", key)
        .body(Full::default());
    server.send(request.expect("a request")).await.status
}

#[tokio::test]
async fn a_key_is_replaced_by_the_next() {
    let raw = |key: &str| RawConfig {
        api_key: Some(SecretString::from(key.to_owned())),
        ..RawConfig::default()
    };
    let server = World::new().serve_as(raw("x"), |config| config.key = key("first-key")).await;
    assert_eq!(status(&server, "first-key").await, 200);
    let mut config = server.world.config(raw("x"));
    config.key = key("second-key");
    server.reload.apply(config.clone()).await.expect("a reload");
    assert_eq!(
        (status(&server, "first-key").await, status(&server, "second-key").await),
        (401, 200)
    );
    // Whatever is written, a server that asks for a key goes on to do so.
    config.key = KeyConfig::Off;
    server.reload.apply(config).await.expect("a reload");
    assert_eq!((status(&server, "none").await, status(&server, "second-key").await), (401, 200));
}

fn key(text: &str) -> KeyConfig {
    KeyConfig::File(SecretString::from(text.to_owned()))
}

#[tokio::test]
async fn the_key_in_the_data_directory_is_read_again() {
    let server =
        World::new().serve_as(RawConfig::default(), |config| config.key = KeyConfig::DataDir).await;
    let mut config = server.world.config(RawConfig::default());
    config.key = KeyConfig::DataDir;
    let path = config.data_dir.join("api-key");
    osb_sys::fs::write(&path, "another-key\n").expect("a file");
    assert_eq!(status(&server, "another-key").await, 401);
    server.reload.apply(config.clone()).await.expect("a reload");
    assert_eq!(status(&server, "another-key").await, 200);
    // One that cannot be used changes nothing.
    osb_sys::fs::write(&path, "\n").expect("a file");
    config.max_sandbox_timeout_seconds = 60;
    assert!(server.reload.apply(config).await.is_err());
    assert_eq!(status(&server, "another-key").await, 200);
    let request = Request::post("/v1/sandboxes")
        .header("host", &server.address)
        .header("open-sandbox-api-key", "another-key")
        .header("content-type", "application/json")
        .body(Full::from(with(json!({"timeout": 600})).to_string()));
    assert_eq!(server.send(request.expect("a request")).await.status, 202);
}

#[tokio::test]
async fn the_longest_life_is_that_of_the_last_reload() {
    let server = TestServer::start().await;
    server.create().await;
    let raw = RawConfig { max_sandbox_timeout_seconds: Some(300), ..RawConfig::default() };
    server.reload.apply(server.world.config(raw)).await.expect("a reload");
    let body = with(json!({"timeout": 600}));
    let refused = server.call(Method::POST, "/v1/sandboxes", Some(body)).await;
    assert_eq!(refused.status, 400, "{refused:?}");
}

#[tokio::test]
async fn what_the_operator_allows_holds_for_sandboxes_that_there_are() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let mut config = server.world.config(RawConfig::default());
    let raw = toml::from_str("default = 'deny'\nallow = ['pypi.org']").expect("settings");
    config.egress = Operator::new(&raw).expect("an operator");
    server.reload.apply(config).await.expect("a reload");
    let shown = server.get(&format!("/v1/sandboxes/{id}/networkpolicy")).await.json();
    assert_eq!(shown["operator"], json!([{"action": "allow", "target": "pypi.org"}]));
    let told = server.get("/v1/networkpolicy").await.json();
    assert_eq!(told["policy"], json!({"defaultAction": "deny", "egress": []}));
}
