//! Whether a sandbox has something to do.

use std::time::Duration;

use http::{Method, StatusCode};
use osb_api::execd::{SessionCreated, Work};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{
    daemon::{Daemon, bytes, request},
    websocket::WebSocket,
};

async fn running(daemon: &Daemon) -> u64 {
    let response = daemon.get("/work").await;
    assert_eq!(response.status(), StatusCode::OK);
    serde_json::from_slice::<Work>(&bytes(response).await).unwrap().running
}

async fn becomes(daemon: &Daemon, count: u64) {
    let counted = async {
        while running(daemon).await != count {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(Duration::from_secs(20), counted).await.is_ok(), "it is never {count}");
}

#[tokio::test]
async fn commands_count_as_long_as_they_run() {
    let daemon = Daemon::start();
    assert_eq!(running(&daemon).await, 0);
    daemon.run(json!({"command": "true"})).await;
    assert_eq!(running(&daemon).await, 0);
    let first = daemon.background(json!({"command": "exec sleep 60"})).await;
    let second = daemon.background(json!({"command": "exec sleep 60"})).await;
    assert_eq!(running(&daemon).await, 2);
    for (id, left) in [(first, 1), (second, 0)] {
        let path = format!("/command?id={id}");
        daemon.send(request(Method::DELETE, &path, "")).await;
        becomes(&daemon, left).await;
    }
}

#[tokio::test]
async fn a_session_counts_while_it_runs_something() {
    let daemon = Daemon::start();
    let response = daemon.send(request(Method::POST, "/session", "")).await;
    let made: SessionCreated = serde_json::from_slice(&bytes(response).await).unwrap();
    assert_eq!(running(&daemon).await, 0, "a shell that waits has nothing to do");
    let path = format!("/session/{}/run", made.session_id);
    let body = json!({"command": "sleep 60"}).to_string();
    let run = daemon.send(request(Method::POST, &path, body)).await;
    becomes(&daemon, 1).await;
    daemon.send(request(Method::DELETE, &format!("/session/{}", made.session_id), "")).await;
    drop(run);
    becomes(&daemon, 0).await;
}

#[tokio::test]
async fn a_terminal_counts_while_more_than_its_shell_runs() {
    let daemon = Daemon::start();
    let create = |body: String| daemon.send(request(Method::POST, "/pty", body));
    let id = |bytes: Vec<u8>| {
        let made: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        made.get("session_id").and_then(|id| id.as_str()).unwrap().to_owned()
    };
    let shell = id(bytes(create(String::new()).await).await.to_vec());
    let mut client = WebSocket::open(&daemon, &format!("/pty/{shell}/ws")).await;
    client.heard().await;
    becomes(&daemon, 0).await;
    client.stdin("sleep 60\n").await;
    becomes(&daemon, 1).await;
    client.stdin("\x03").await;
    becomes(&daemon, 0).await;
    let program = create(json!({"argv": ["sleep", "60"]}).to_string()).await;
    let program = id(bytes(program).await.to_vec());
    let mut other = WebSocket::open(&daemon, &format!("/pty/{program}/ws")).await;
    other.heard().await;
    becomes(&daemon, 1).await;
}
