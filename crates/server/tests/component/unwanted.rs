//! Removing what nobody wants while no server runs.

use std::time::Duration;

use osb_core::Runtime as _;
use osb_server::{StartError, Wanted, remove_unwanted};
use serde_json::json;

use crate::harness::{TestServer, World, wait_for, with};

async fn remove(world: &World) -> Result<Wanted, StartError> {
    remove_unwanted(&world.dir.path().join("data"), &world.runtime, &world.clock).await
}

#[tokio::test]
async fn what_a_server_would_remove_goes_and_what_is_wanted_stays() {
    let server = TestServer::start().await;
    let expired = server.create_from(with(json!({"timeout": 60}))).await;
    let kept = server.create_from(with(json!({"timeout": 600}))).await;
    let world = server.stop().await;
    let orphan = world.runtime.add_orphan();
    world.clock.advance(Duration::from_secs(61));

    assert_eq!(remove(&world).await.expect("a removal"), Wanted::Known);
    assert_eq!(world.runtime.observed(orphan), None);
    let left: Vec<_> = world.runtime.list().await.expect("a list");
    assert_eq!(left.iter().map(|seen| seen.id.to_string()).collect::<Vec<_>>(), [kept.as_str()]);

    let server = world.serve().await;
    wait_for("the end", async || server.state(&expired).await == "gone").await;
    assert_eq!(server.state(&kept).await, "Running");
}

#[tokio::test]
async fn a_creation_that_nobody_was_told_of_goes() {
    let server = TestServer::start().await;
    let gate = server.world.runtime.hold_ensures();
    let creation = server.begin_create().await;
    wait_for("the start", async || gate.waiting() == 1).await;
    let world = server.stop().await;
    assert!(!creation.was_answered().await);
    gate.open();
    remove(&world).await.expect("a removal");
    assert!(world.runtime.list().await.expect("a list").is_empty());
    let server = world.serve().await;
    wait_for("an empty list", async || {
        server.get("/v1/sandboxes").await.json()["items"] == json!([])
    })
    .await;
    server.assert_empty().await;
}

#[tokio::test]
async fn nothing_goes_while_a_server_runs_or_without_a_database() {
    let server = TestServer::start().await;
    server.create().await;
    let orphan = server.world.runtime.add_orphan();
    let refused = remove(&server.world).await;
    assert!(matches!(refused, Err(StartError::InUse(_))), "{refused:?}");
    let world = server.stop().await;
    assert!(world.runtime.observed(orphan).is_some());
    let elsewhere = World { runtime: world.runtime.clone(), ..World::new() };
    assert_eq!(remove(&elsewhere).await.expect("a look"), Wanted::Unknown);
    assert_eq!(world.runtime.list().await.expect("a list").len(), 2);
}
