//! What a server finds when it comes back.

use std::{os::unix::fs::PermissionsExt, sync::Arc, time::Duration};

use osb_core::{
    Runtime,
    testkit::{Call, TestClock},
};
use osb_server::{Config, Overrides, RawConfig, Server, StartError, World as Driven};
use serde_json::json;

use crate::harness::{TestServer, World, wait_for, with};

#[tokio::test]
async fn sandboxes_outlive_the_server() {
    let server = TestServer::start().await;
    let running = server.create_from(with(json!({"metadata": {"a": "1"}}))).await;
    let paused = server.create_from(with(json!({"secureAccess": true, "timeout": null}))).await;
    assert_eq!(server.post(&format!("/v1/sandboxes/{paused}/pause"), None).await.status, 202);
    let paths = [&running, &paused].map(|id| format!("/v1/sandboxes/{id}"));
    let mut before = Vec::new();
    for path in &paths {
        before.push(server.get(path).await.json());
        before.push(server.get(&format!("{path}/endpoints/44772")).await.json()["headers"].clone());
    }

    let server = server.stop().await.serve().await;
    let mut after = Vec::new();
    for path in &paths {
        after.push(server.get(path).await.json());
        after.push(server.get(&format!("{path}/endpoints/44772")).await.json()["headers"].clone());
    }
    assert_eq!(after, before);
    assert_eq!(server.post(&format!("{}/resume", paths[1]), None).await.status, 202);
    for path in &paths {
        assert_eq!(server.delete(path).await.status, 204);
    }
    server.assert_empty().await;
}

#[tokio::test]
async fn what_expired_meanwhile_and_what_nobody_knows_is_removed() {
    let server = TestServer::start().await;
    let expired = server.create_from(with(json!({"timeout": 60}))).await;
    let kept = server.create_from(with(json!({"timeout": 600}))).await;
    let world = server.stop().await;
    let orphan = world.runtime.add_orphan();
    world.clock.advance(Duration::from_secs(61));

    let server = world.serve().await;
    assert_eq!(server.world.runtime.observed(orphan), None);
    wait_for("the end", async || server.state(&expired).await == "gone").await;
    assert_eq!(server.state(&kept).await, "Running");
    assert_eq!(server.world.runtime.list().await.expect("a list").len(), 1);
}

#[tokio::test]
async fn what_vanished_meanwhile_has_failed() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let world = server.stop().await;
    world.runtime.vanish(id.parse().expect("an id"));
    let server = world.serve().await;
    wait_for("the loss", async || server.state(&id).await == "Failed").await;
    assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).await.status, 204);
    server.assert_empty().await;
}

#[tokio::test]
async fn a_removal_that_was_not_finished_is_finished() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let broken = || osb_core::RuntimeError::failed("remove it", "no");
    // More than the server gets to try before it is stopped.
    for _ in 0..100 {
        server.world.runtime.fail_next(Call::Remove, broken());
    }
    assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).await.status, 500);
    let world = server.stop().await;
    let runtime = osb_core::testkit::FakeRuntime::new();
    let world = World { runtime, ..world };
    let server = world.serve().await;
    wait_for("the end", async || server.state(&id).await == "gone").await;
    server.assert_empty().await;
}

#[tokio::test]
async fn a_creation_that_the_server_did_not_survive_is_taken_back() {
    let server = TestServer::start().await;
    let gate = server.world.runtime.hold_ensures();
    let creation = server.begin_create().await;
    wait_for("the start", async || gate.waiting() == 1).await;
    let world = server.stop().await;
    assert!(!creation.was_answered().await);
    let server = world.serve().await;
    wait_for("an empty list", async || {
        server.get("/v1/sandboxes").await.json()["items"] == json!([])
    })
    .await;
    server.assert_empty().await;
    drop(gate);
}

#[tokio::test]
async fn files_are_private_and_a_directory_has_one_server() {
    let server = TestServer::start().await;
    server.create().await;
    let data = server.world.dir.path().join("data");
    let mode =
        |path: &std::path::Path| path.metadata().expect("metadata").permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    let mut files = 0;
    for entry in std::fs::read_dir(&data).expect("the directory") {
        let path = entry.expect("an entry").path();
        let private = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), private, "{}", path.display());
        files += 1;
    }
    assert!(files >= 3, "the database, its log and the lock");

    let overrides = Overrides {
        listen: Some("127.0.0.1:0".parse().expect("an address")),
        data_dir: Some(data),
        ..Overrides::default()
    };
    let config = Config::new(RawConfig::default(), overrides).expect("a configuration");
    let runtime: Arc<dyn Runtime> = Arc::new(server.world.runtime.clone());
    let listener = Server::listen(&config).await.expect("a free port");
    let second = Server::start(
        listener,
        config,
        Driven { runtime, images: None, clock: Arc::new(TestClock::default()) },
    )
    .await;
    assert!(matches!(second, Err(StartError::InUse(_))), "{second:?}");
}

#[tokio::test]
async fn a_pending_sandbox_that_somebody_knows_is_started_by_the_next_server() {
    let server = World::new().serve_impatiently().await;
    let gate = server.world.runtime.hold_ensures();
    let id = server.create().await;
    let world = server.stop().await;
    gate.open();
    // Whoever was starting it is gone with the server; the runtime lost what it had begun.
    world.runtime.vanish(id.parse().expect("an id"));
    let server = world.serve().await;
    wait_for("its start", async || server.state(&id).await == "Running").await;
}
