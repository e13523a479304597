//! Files of sandboxes, kept.

use osb_api::{SandboxId, SnapshotId};
use osb_core::{Runtime, RuntimeError, testkit::Call};
use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, World, wait_for, with};

impl TestServer {
    async fn snapshot(&self, sandbox: &str, body: Option<Value>) -> Answer {
        self.post(&format!("/v1/sandboxes/{sandbox}/snapshots"), body).await
    }

    /// Keeps the files of a sandbox, and returns the id of what is kept.
    async fn keep(&self, sandbox: &str) -> String {
        let answer = self.snapshot(sandbox, None).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()["id"].as_str().expect("an id").to_owned()
    }

    async fn restore(&self, snapshot: &str) -> Answer {
        let body = json!({"snapshotId": snapshot, "resourceLimits": {}});
        self.post("/v1/sandboxes", Some(body)).await
    }

    async fn snapshot_state(&self, id: &str) -> String {
        let answer = self.get(&format!("/v1/snapshots/{id}")).await;
        if answer.status == 404 {
            return "gone".to_owned();
        }
        answer.json()["status"]["state"].as_str().expect("a state").to_owned()
    }
}

fn id(text: &str) -> SandboxId {
    text.parse().expect("an id")
}

fn failure() -> RuntimeError {
    RuntimeError::failed("cannot keep the files", "the disk is full")
}

#[tokio::test]
async fn files_are_kept_and_come_back() {
    let server = TestServer::start().await;
    let source = server
        .create_from(with(
            json!({"env": {"SECRET": "x"}, "metadata": {"team": "a"}, "timeout": 60}),
        ))
        .await;
    server.world.runtime.write_file(id(&source), "/a", "12345");
    let answer = server.snapshot(&source, Some(json!({"name": "first"}))).await;
    assert_eq!(answer.status, 202);
    let kept = answer.json();
    let snapshot = kept["id"].as_str().expect("an id");
    assert_eq!(answer.header("location"), Some(&*format!("/v1/snapshots/{snapshot}")));
    assert_eq!((&kept["sandboxId"], &kept["name"]), (&json!(source), &json!("first")));
    assert_eq!((&kept["status"]["state"], &kept["sizeBytes"]), (&json!("Ready"), &json!(5)));
    assert_eq!(server.get(&format!("/v1/snapshots/{snapshot}")).await.json(), kept);
    assert_eq!(server.delete(&format!("/v1/sandboxes/{source}")).await.status, 204);

    let answer = server.restore(snapshot).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let made = answer.json();
    assert_eq!(made["entrypoint"], json!(["tail", "-f", "/dev/null"]));
    let restored = made["id"].as_str().expect("an id");
    let shown = server.get(&format!("/v1/sandboxes/{restored}")).await.json();
    assert_eq!(shown["snapshotId"], json!(snapshot));
    for absent in ["image", "metadata", "expiresAt"] {
        assert!(shown.get(absent).is_none(), "{shown}");
    }
    let runtime = &server.world.runtime;
    assert_eq!(runtime.read_file(id(restored), "/a").as_deref(), Some("12345"));
    let spec = runtime.spec(id(restored)).expect("a spec");
    assert_eq!(spec.image.as_str(), "host");
    assert!(!spec.env.contains_key("SECRET"), "{:?}", spec.env);
}

#[tokio::test]
async fn a_body_is_not_needed_and_a_bad_one_is_refused() {
    let server = TestServer::start().await;
    let source = server.create().await;
    for body in [None, Some(json!({})), Some(json!({"name": null}))] {
        assert_eq!(server.snapshot(&source, body).await.status, 202);
    }
    for body in [json!({"name": ""}), json!({"name": 1}), json!({"name": "x".repeat(257)})] {
        let answer = server.snapshot(&source, Some(body)).await;
        answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_to_be_so() {
    let server = TestServer::start().await;
    for unknown in [SnapshotId::random().to_string(), "x".to_owned(), "a%2Fb".to_owned()] {
        let path = format!("/v1/snapshots/{unknown}");
        server.get(&path).await.refusal(404, "SNAPSHOT::NOT_FOUND");
        server.delete(&path).await.refusal(404, "SNAPSHOT::NOT_FOUND");
        server.restore(&unknown).await.refusal(404, "SNAPSHOT::NOT_FOUND");
        server.snapshot(&unknown, None).await.refusal(404, "DOCKER::SANDBOX_NOT_FOUND");
    }
    let source = server.create().await;
    let both = with(json!({"snapshotId": server.keep(&source).await}));
    let answer = server.post("/v1/sandboxes", Some(both)).await;
    answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
}

#[tokio::test]
async fn only_what_runs_or_is_paused_can_be_kept() {
    let server = TestServer::start().await;
    let source = server.create().await;
    assert_eq!(server.post(&format!("/v1/sandboxes/{source}/pause"), None).await.status, 202);
    server.keep(&source).await;
    assert_eq!(server.state(&source).await, "Paused");
    let ended = server.create().await;
    server.world.runtime.end(id(&ended), osb_core::Exit::Code(0));
    wait_for("the end", async || server.state(&ended).await == "Terminated").await;
    server.snapshot(&ended, None).await.refusal(409, "SNAPSHOT::INVALID_SOURCE_STATE");
}

#[tokio::test]
async fn a_runtime_that_keeps_nothing_says_so() {
    let mut world = World::new();
    world.runtime = world.runtime.without_snapshots();
    let server = world.serve().await;
    let source = server.create().await;
    server.snapshot(&source, None).await.refusal(501, "SNAPSHOT::NOT_IMPLEMENTED");
    assert_eq!(server.get("/v1/snapshots").await.json()["items"], json!([]));
}

#[tokio::test]
async fn snapshots_are_listed_newest_first_and_filtered() {
    let server = TestServer::start().await;
    let (one, other) = (server.create().await, server.create().await);
    let mut ids = Vec::new();
    for (sandbox, name) in [(&one, "a"), (&one, "b"), (&other, "a")] {
        server.world.clock.advance(std::time::Duration::from_secs(1));
        let answer = server.snapshot(sandbox, Some(json!({"name": name}))).await.json();
        ids.insert(0, answer["id"].clone());
    }
    let list = async |query: &str| {
        let answer = server.get(&format!("/v1/snapshots?{query}")).await.json();
        let items = answer["items"].as_array().expect("items");
        items.iter().map(|item| item["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(list("").await, ids);
    assert_eq!(list("name=a").await, [ids[0].clone(), ids[2].clone()]);
    assert_eq!(list(&format!("sandboxId={one}&name=b")).await, [ids[1].clone()]);
    assert_eq!(list("state=Ready&state=Failed").await, ids);
    assert_eq!(list("state=Failed").await, Vec::<Value>::new());
    assert_eq!(list("page=2&pageSize=2").await, [ids[2].clone()]);
    let answer = server.get("/snapshots?pageSize=201").await;
    answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
}

#[tokio::test]
async fn a_snapshot_that_takes_long_is_answered_as_creating() {
    let server = World::new().serve_impatiently().await;
    let answer = server.post("/v1/sandboxes", Some(with(json!({})))).await.json();
    let source = answer["id"].as_str().expect("an id").to_owned();
    wait_for("a sandbox", async || server.state(&source).await == "Running").await;
    let gate = server.world.runtime.hold_snapshots();
    let answer = server.snapshot(&source, None).await;
    assert_eq!((answer.status, &answer.json()["status"]["state"]), (202, &json!("Creating")));
    let snapshot = answer.json()["id"].as_str().expect("an id").to_owned();
    wait_for("the gate", async || gate.waiting() == 1).await;
    server.restore(&snapshot).await.refusal(409, "SNAPSHOT::NOT_READY");
    let path = format!("/v1/snapshots/{snapshot}");
    server.delete(&path).await.refusal(409, "SNAPSHOT::INVALID_STATE");
    gate.open();
    wait_for("the snapshot", async || server.snapshot_state(&snapshot).await == "Ready").await;
}

#[tokio::test]
async fn a_snapshot_that_fails_leaves_nothing() {
    let server = TestServer::start().await;
    let source = server.create().await;
    server.world.runtime.fail_next(Call::TakeSnapshot, failure());
    let answer = server.snapshot(&source, None).await;
    let message = answer.refusal(500, "SNAPSHOT::RUNTIME_CREATE_FAILED");
    assert!(!message.contains("disk"), "the cause is for the log: {message}");
    let deep = RuntimeError::Invalid("too many".to_owned());
    server.world.runtime.fail_next(Call::TakeSnapshot, deep);
    server.snapshot(&source, None).await.refusal(409, "SNAPSHOT::RUNTIME_CREATE_CONFLICT");
    assert_eq!(server.get("/v1/snapshots").await.json()["items"], json!([]));
    assert_eq!(server.state(&source).await, "Running");
}

#[tokio::test]
async fn a_deleted_snapshot_is_gone_and_those_that_started_from_it_live() {
    let server = TestServer::start().await;
    let source = server.create().await;
    let snapshot = server.keep(&source).await;
    let restored = server.restore(&snapshot).await.json()["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/snapshots/{snapshot}");
    let answer = server.delete(&path).await;
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    server.get(&path).await.refusal(404, "SNAPSHOT::NOT_FOUND");
    assert_eq!(server.state(&restored).await, "Running");
    assert!(!server.world.runtime.has_snapshot(snapshot.parse().expect("an id")));
}

#[tokio::test]
async fn a_deletion_that_fails_is_tried_again() {
    let server = TestServer::start().await;
    let source = server.create().await;
    let snapshot = server.keep(&source).await;
    server.world.runtime.fail_next(Call::DeleteSnapshot, failure());
    let answer = server.delete(&format!("/v1/snapshots/{snapshot}")).await;
    answer.refusal(500, "SNAPSHOT::DELETE_FAILED");
    wait_for("the end", async || server.snapshot_state(&snapshot).await == "gone").await;
    assert_eq!(server.world.runtime.calls(Call::DeleteSnapshot), 2);
}

#[tokio::test]
async fn snapshots_outlive_the_server() {
    let server = World::new().serve_impatiently().await;
    let answer = server.post("/v1/sandboxes", Some(with(json!({})))).await.json();
    let source = answer["id"].as_str().expect("an id").to_owned();
    wait_for("a sandbox", async || server.state(&source).await == "Running").await;
    let ready = server.keep(&source).await;
    wait_for("the snapshot", async || server.snapshot_state(&ready).await == "Ready").await;
    // One is not whole when the server ends, one is whole just then, and one is deleted then.
    let gate = server.world.runtime.hold_snapshots();
    let (lost, whole) = (server.keep(&source).await, server.keep(&source).await);
    wait_for("the gate", async || gate.waiting() == 2).await;
    let world = server.stop().await;
    gate.open();
    let power = Runtime::snapshots(&world.runtime).expect("a power");
    power.take(id(&source), whole.parse().expect("an id")).await.expect("a snapshot");
    let orphan = world.runtime.add_orphan_snapshot();

    let server = world.serve().await;
    assert_eq!(server.snapshot_state(&ready).await, "Ready");
    assert_eq!(server.snapshot_state(&whole).await, "Ready");
    assert_eq!(server.snapshot_state(&lost).await, "Failed");
    assert!(!server.world.runtime.has_snapshot(orphan));
    server.restore(&lost).await.refusal(409, "SNAPSHOT::NOT_READY");
    assert_eq!(server.delete(&format!("/v1/snapshots/{lost}")).await.status, 204);
    assert_eq!(server.restore(&whole).await.status, 202);
}
