//! What becomes of a request when the runtime fails, dawdles or surprises.

use osb_core::{
    Exit, Runtime, RuntimeError,
    testkit::{Call, FakeRuntime},
};
use serde_json::json;

use crate::harness::{TestServer, World, minimal, wait_for, with};

fn broken(doing: &str) -> RuntimeError {
    RuntimeError::failed(doing, "/secret/path: the disk is on fire")
}

#[tokio::test]
async fn a_failed_start_leaves_nothing_and_keeps_the_cause_to_itself() {
    let server = TestServer::start().await;
    let runtime = &server.world.runtime;
    for (error, status, code) in [
        (broken("mount the image"), 500, "DOCKER::SANDBOX_START_FAILED"),
        (RuntimeError::Invalid("no such user".to_owned()), 400, "SANDBOX::INVALID_PARAMETER"),
        (RuntimeError::Busy("all places are taken".to_owned()), 429, "SANDBOX::TOO_BUSY"),
    ] {
        runtime.fail_next(Call::Ensure, error);
        let answer = server.post("/v1/sandboxes", Some(minimal())).await;
        let message = answer.refusal(status, code);
        assert!(!message.contains("secret"), "{message}");
        assert_eq!(answer.header("retry-after"), (status == 429).then_some("1"));
        server.assert_empty().await;
    }
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_written_down_is_taken_back() {
    let server = TestServer::start().await;
    let kept = server.create().await;
    let database = server.world.dir.path().join("data/opensandbox.db");
    let database = rusqlite::Connection::open(database).expect("the database");
    database.execute_batch("ALTER TABLE sandboxes RENAME TO elsewhere").expect("a change");
    let answer = server.post("/v1/sandboxes", Some(minimal())).await;
    assert_eq!(answer.status, 500, "{answer:?}");
    assert_eq!(server.get("/v1/sandboxes").await.json()["pagination"]["totalItems"], 1);
    assert_eq!(server.world.runtime.list().await.expect("a list").len(), 1);

    database.execute_batch("ALTER TABLE elsewhere RENAME TO sandboxes").expect("a change");
    server.create().await;
    assert_eq!(server.state(&kept).await, "Running");
}

#[tokio::test]
async fn a_sandbox_that_ends_at_once_with_an_error_is_a_failed_start() {
    let server = TestServer::start().await;
    let body = with(json!({"entrypoint": ["sh", "-c", "exit 7"]}));
    let answer = server.post("/v1/sandboxes", Some(body)).await;
    let message = answer.refusal(500, "DOCKER::SANDBOX_START_FAILED");
    assert!(message.contains("exit code 7"), "{message}");
    server.assert_empty().await;
}

#[tokio::test]
async fn a_sandbox_that_is_done_at_once_is_terminated() {
    let server = TestServer::start().await;
    let id = server.create_from(with(json!({"entrypoint": ["true"]}))).await;
    wait_for("its end", async || server.state(&id).await == "Terminated").await;
    assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).await.status, 204);
    server.assert_empty().await;
}

#[tokio::test]
async fn a_failed_start_whose_cleaning_fails_is_answered_and_cleaned_up_later() {
    let server = TestServer::start().await;
    server.world.runtime.fail_next(Call::Ensure, broken("start it"));
    server.world.runtime.fail_next(Call::Remove, broken("remove it"));
    let answer = server.post("/v1/sandboxes", Some(minimal())).await;
    answer.refusal(500, "DOCKER::SANDBOX_START_FAILED");
    wait_for("an empty list", async || {
        server.get("/v1/sandboxes").await.json()["items"] == json!([])
    })
    .await;
    server.assert_empty().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_during_a_create_leaves_nothing() {
    let server = TestServer::start().await;
    let gate = server.world.runtime.hold_ensures();
    let creation = server.begin_create().await;
    wait_for("the start", async || gate.waiting() == 1).await;
    let list = server.get("/v1/sandboxes?state=pending").await.json();
    assert_eq!(list["pagination"]["totalItems"], 1);

    creation.hang_up();
    wait_for("an empty list", async || {
        server.get("/v1/sandboxes").await.json()["items"] == json!([])
    })
    .await;
    server.assert_empty().await;
    gate.open();
    server.assert_empty().await;
}

#[tokio::test]
async fn a_sandbox_can_be_deleted_while_it_starts() {
    let server = TestServer::start().await;
    let gate = server.world.runtime.hold_ensures();
    let creation = server.post("/v1/sandboxes", Some(minimal()));
    let deletion = async {
        wait_for("the start", async || gate.waiting() == 1).await;
        let list = server.get("/v1/sandboxes").await.json();
        let id = list["items"][0]["id"].as_str().expect("an id").to_owned();
        assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).await.status, 204);
    };
    let (created, ()) = tokio::join!(creation, deletion);
    created.refusal(500, "DOCKER::SANDBOX_START_FAILED");
    server.assert_empty().await;
}

#[tokio::test]
async fn a_removal_that_fails_is_said_and_tried_again() {
    let server = TestServer::start().await;
    let id = server.create().await;
    for _ in 0..3 {
        server.world.runtime.fail_next(Call::Remove, broken("unmount it"));
    }
    let answer = server.delete(&format!("/v1/sandboxes/{id}")).await;
    answer.refusal(500, "DOCKER::SANDBOX_DELETE_FAILED");
    assert_eq!(server.state(&id).await, "Stopping");
    wait_for("its removal", async || server.state(&id).await == "gone").await;
    server.assert_empty().await;
}

#[tokio::test]
async fn asking_again_does_not_wait_for_the_next_try() {
    let server = TestServer::start().await;
    let id = server.create().await;
    server.world.runtime.fail_next(Call::Remove, broken("unmount it"));
    assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).await.status, 500);
    assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).await.status, 204);
    server.assert_empty().await;
}

#[tokio::test]
async fn a_pause_that_fails_leaves_the_sandbox_running() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let at = |verb: &str| format!("/v1/sandboxes/{id}/{verb}");
    server.world.runtime.fail_next(Call::Pause, broken("freeze it"));
    server.post(&at("pause"), None).await.refusal(500, "DOCKER::SANDBOX_PAUSE_FAILED");
    wait_for("running again", async || server.state(&id).await == "Running").await;

    assert_eq!(server.post(&at("pause"), None).await.status, 202);
    server.world.runtime.fail_next(Call::Resume, broken("thaw it"));
    server.post(&at("resume"), None).await.refusal(500, "DOCKER::SANDBOX_RESUME_FAILED");
    wait_for("paused again", async || server.state(&id).await == "Paused").await;
    assert_eq!(server.post(&at("resume"), None).await.status, 202);
}

#[tokio::test]
async fn a_runtime_that_cannot_pause_says_so() {
    let world = World { runtime: FakeRuntime::new().without_pause(), ..World::new() };
    let server = world.serve().await;
    let id = server.create().await;
    let answer = server.post(&format!("/v1/sandboxes/{id}/pause"), None).await;
    answer.refusal(409, "SANDBOX::API_NOT_SUPPORTED");
    assert_eq!(server.state(&id).await, "Running");
}

#[tokio::test]
async fn the_end_of_an_entrypoint_is_seen() {
    let server = TestServer::start().await;
    for (exit, state, reason) in [
        (Exit::Code(0), "Terminated", "CONTAINER_EXITED"),
        (Exit::Code(3), "Failed", "CONTAINER_EXITED_ERROR"),
        (Exit::OutOfMemory, "Failed", "OUT_OF_MEMORY"),
    ] {
        let id = server.create().await;
        server.world.runtime.end(id.parse().expect("an id"), exit);
        wait_for("its end", async || server.state(&id).await == state).await;
        let status = server.get(&format!("/v1/sandboxes/{id}")).await.json()["status"].clone();
        assert_eq!(status["reason"], reason);
        server
            .get(&format!("/v1/sandboxes/{id}/proxy/8080/"))
            .await
            .refusal(409, "DOCKER::SANDBOX_NOT_RUNNING");
    }
}

#[tokio::test]
async fn a_hundred_sandboxes_are_made_and_removed_at_once() {
    let server = TestServer::start().await;
    let creations = (0..100).map(|_| server.create());
    let ids = futures_util::future::join_all(creations).await;
    let list = server.get("/v1/sandboxes?pageSize=1").await.json();
    assert_eq!(list["pagination"]["totalItems"], 100);
    let paths: Vec<_> = ids.iter().map(|id| format!("/v1/sandboxes/{id}")).collect();
    let removals = paths.iter().map(|path| server.delete(path));
    let answers = futures_util::future::join_all(removals).await;
    assert!(answers.iter().all(|answer| answer.status == 204));
    server.assert_empty().await;
}

#[tokio::test]
async fn a_start_that_takes_long_is_answered_as_pending_and_goes_on() {
    let server = World::new().serve_impatiently().await;
    let gate = server.world.runtime.hold_ensures();
    let answer = server.post("/v1/sandboxes", Some(minimal())).await;
    assert_eq!(answer.status, 202);
    let created = answer.json();
    assert_eq!(created["status"]["state"], "Pending");
    let id = created["id"].as_str().expect("an id");
    assert_eq!(server.get(&format!("/v1/sandboxes/{id}/endpoints/44772")).await.status, 200);
    let early = server.get(&format!("/v1/sandboxes/{id}/proxy/44772/ping")).await;
    early.refusal(502, "BACKEND_CONNECTION_FAILED");
    gate.open();
    wait_for("its start", async || server.state(id).await == "Running").await;
    assert_eq!(server.get(&format!("/v1/sandboxes/{id}/proxy/44772/ping")).await.status, 200);
}

#[tokio::test]
async fn a_start_that_fails_after_its_answer_shows_as_failed_and_holds_nothing() {
    let server = World::new().serve_impatiently().await;
    let gate = server.world.runtime.hold_ensures();
    let created = server.post("/v1/sandboxes", Some(minimal())).await.json();
    let id = created["id"].as_str().expect("an id");
    // The runtime loses the sandbox while it starts.
    server.world.runtime.vanish(id.parse().expect("an id"));
    gate.open();
    wait_for("its end", async || server.state(id).await == "Failed").await;
    assert_eq!(server.world.runtime.list().await.expect("a list"), []);
    let status = server.get(&format!("/v1/sandboxes/{id}")).await.json()["status"].clone();
    assert_eq!(status["reason"], "START_FAILED");
    server.delete(&format!("/v1/sandboxes/{id}")).await;
    wait_for("its removal", async || server.state(id).await == "gone").await;
    server.assert_empty().await;
}
