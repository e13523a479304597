//! What becomes of sandboxes that are used, and of those that are not.

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::Method;
use http_body_util::Full;
use osb_core::{
    RuntimeError,
    testkit::{Call, Line},
};
use serde_json::{Value, json};

use crate::{
    endpoints::echo,
    harness::{Answer, TestServer, wait_for, with},
};

const SECONDS: &str = "opensandbox.extensions.idle.timeout.seconds";
const ACTION: &str = "opensandbox.extensions.idle.action";

/// execd that says how much is at work.
fn busy(work: &Arc<AtomicU64>) -> impl Fn(Line) + Send + Sync + 'static {
    let work = Arc::clone(work);
    move |mut line| {
        let work = Arc::clone(&work);
        std::thread::spawn(move || {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && line.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let body = format!("{{\"running\":{}}}", work.load(Ordering::SeqCst));
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {length}\r\n\r\n{body}"
            );
            line.write_all(answer.as_bytes()).ok();
        });
    }
}

/// A sandbox that may be idle for 100 seconds, with an echo on port 8080 and nothing at work.
async fn resting(server: &TestServer, action: &str) -> (String, Arc<AtomicU64>) {
    let extensions = json!({SECONDS: "100", ACTION: action});
    let id = server.create_from(with(json!({"extensions": extensions, "timeout": 86_400}))).await;
    (id.clone(), furnish(server, &id))
}

fn furnish(server: &TestServer, id: &str) -> Arc<AtomicU64> {
    let work = Arc::new(AtomicU64::new(0));
    let sandbox = id.parse().expect("an id");
    server.world.runtime.listen(sandbox, 44772, busy(&work));
    server.world.runtime.listen(sandbox, 8080, echo);
    work
}

/// Lets time pass, and has the driver look at its clock.
async fn pass(server: &TestServer, id: &str, seconds: u64) {
    server.world.clock.advance(Duration::from_secs(seconds));
    nudge(server, id).await;
}

async fn nudge(server: &TestServer, id: &str) {
    let label = json!({"nudge": seconds_now(server)});
    let path = format!("/v1/sandboxes/{id}/metadata");
    // One that is gone needs no nudge.
    let answer = server.call(Method::PATCH, &path, Some(label)).await;
    assert!(matches!(answer.status, 200 | 404), "{answer:?}");
}

fn seconds_now(server: &TestServer) -> String {
    use osb_core::Clock as _;
    server.world.clock.now().as_second().to_string()
}

async fn call(server: &TestServer, id: &str) -> Answer {
    let path = format!("/v1/sandboxes/{id}/proxy/8080/");
    server.send(server.bare_request(Method::GET, &path).body(Full::default()).expect("one")).await
}

async fn status(server: &TestServer, id: &str) -> Value {
    server.get(&format!("/v1/sandboxes/{id}")).await.json()["status"].clone()
}

async fn becomes(server: &TestServer, id: &str, state: &str) {
    wait_for(state, async || server.state(id).await == state).await;
}

/// Gives a driver that has something to do the time to do it.
async fn stays(server: &TestServer, id: &str, state: &str) {
    for _ in 0..20 {
        nudge(server, id).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(server.state(id).await, state);
    }
}

#[tokio::test]
async fn a_sandbox_that_nobody_uses_is_paused_and_the_next_request_wakes_it() {
    let server = TestServer::start().await;
    let (id, _) = resting(&server, "pause").await;
    let shown = server.get(&format!("/v1/sandboxes/{id}")).await.json();
    assert_eq!(shown["extensions"], json!({SECONDS: "100", ACTION: "pause"}));
    pass(&server, &id, 99).await;
    stays(&server, &id, "Running").await;
    assert_eq!(call(&server, &id).await.status, 200);
    pass(&server, &id, 99).await;
    stays(&server, &id, "Running").await;
    pass(&server, &id, 1).await;
    becomes(&server, &id, "Paused").await;
    let told = status(&server, &id).await;
    assert_eq!(told["reason"], "IDLE", "{told}");

    assert_eq!(call(&server, &id).await.status, 200);
    assert_eq!(server.state(&id).await, "Running");
    pass(&server, &id, 99).await;
    stays(&server, &id, "Running").await;
    pass(&server, &id, 1).await;
    becomes(&server, &id, "Paused").await;
    // Many at once wake it once.
    let answers = futures_util::future::join_all((0..8).map(|_| call(&server, &id))).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
}

#[tokio::test]
async fn a_sandbox_that_a_user_paused_is_not_woken() {
    let server = TestServer::start().await;
    let (id, _) = resting(&server, "pause").await;
    let path = |verb: &str| format!("/v1/sandboxes/{id}/{verb}");
    assert_eq!(server.post(&path("pause"), None).await.status, 202);
    call(&server, &id).await.refusal(409, "DOCKER::SANDBOX_NOT_RUNNING");
    assert_eq!(server.post(&path("resume"), None).await.status, 202);
    // To resume it is to use it.
    pass(&server, &id, 99).await;
    stays(&server, &id, "Running").await;
    pass(&server, &id, 1).await;
    becomes(&server, &id, "Paused").await;
    // One that sleeps can be made to stay.
    assert_eq!(server.post(&path("pause"), None).await.status, 202);
    call(&server, &id).await.refusal(409, "DOCKER::SANDBOX_NOT_RUNNING");
    server.post(&path("pause"), None).await.refusal(409, "DOCKER::SANDBOX_NOT_RUNNING");
}

#[tokio::test]
async fn a_sandbox_in_which_something_is_at_work_is_not_idle() {
    let server = TestServer::start().await;
    let (id, work) = resting(&server, "delete").await;
    work.store(2, Ordering::SeqCst);
    for _ in 0..3 {
        pass(&server, &id, 100).await;
        stays(&server, &id, "Running").await;
    }
    work.store(0, Ordering::SeqCst);
    pass(&server, &id, 99).await;
    stays(&server, &id, "Running").await;
    pass(&server, &id, 1).await;
    becomes(&server, &id, "gone").await;
    server.assert_empty().await;
}

#[tokio::test]
async fn a_sandbox_that_does_not_say_what_it_does_is_left_alone() {
    let server = TestServer::start().await;
    let (id, _) = resting(&server, "delete").await;
    server.world.runtime.listen(id.parse().expect("an id"), 44772, |mut line| {
        line.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nwhat").ok();
    });
    pass(&server, &id, 1000).await;
    stays(&server, &id, "Running").await;
}

#[tokio::test]
async fn a_request_in_progress_is_a_use() {
    let server = TestServer::start().await;
    let (id, _) = resting(&server, "delete").await;
    let held: Arc<std::sync::Mutex<Vec<Line>>> = Arc::default();
    let kept = Arc::clone(&held);
    server.world.runtime.listen(id.parse().expect("an id"), 8080, move |mut line| {
        line.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nfirst").ok();
        kept.lock().expect("a lock").push(line);
    });
    let mut stream = tokio::net::TcpStream::connect(&server.address).await.expect("a connection");
    let request =
        format!("GET /v1/sandboxes/{id}/proxy/8080/ HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.expect("sent");
    let mut seen = Vec::new();
    while !seen.ends_with(b"first\r\n") {
        seen.push(tokio::io::AsyncReadExt::read_u8(&mut stream).await.expect("an answer"));
    }
    pass(&server, &id, 1000).await;
    stays(&server, &id, "Running").await;
    drop(stream);
    // It ends with its client, and the time begins anew.
    wait_for("the end", async || {
        pass(&server, &id, 100).await;
        server.state(&id).await == "gone" || {
            tokio::time::sleep(Duration::from_millis(5)).await;
            server.state(&id).await == "gone"
        }
    })
    .await;
    drop(held);
}

#[tokio::test]
async fn sleep_and_rules_outlive_the_server() {
    let server = TestServer::start().await;
    let (asleep, _) = resting(&server, "pause").await;
    pass(&server, &asleep, 100).await;
    becomes(&server, &asleep, "Paused").await;
    let (awake, _) = resting(&server, "delete").await;
    let world = server.stop().await;
    world.clock.advance(Duration::from_secs(1000));

    let server = world.serve().await;
    stays(&server, &awake, "Running").await;
    assert_eq!(call(&server, &asleep).await.status, 200);
    assert_eq!(server.state(&asleep).await, "Running");
    pass(&server, &awake, 100).await;
    becomes(&server, &awake, "gone").await;
}

#[tokio::test]
async fn a_sandbox_that_could_not_be_woken_is_tried_again() {
    let server = TestServer::start().await;
    let (id, _) = resting(&server, "pause").await;
    pass(&server, &id, 100).await;
    becomes(&server, &id, "Paused").await;
    server.world.runtime.fail_next(Call::Resume, RuntimeError::failed("resume it", "no"));
    call(&server, &id).await.refusal(500, "DOCKER::SANDBOX_RESUME_FAILED");
    assert_eq!(server.state(&id).await, "Paused");
    assert_eq!(call(&server, &id).await.status, 200);

    server.world.runtime.fail_next(Call::Pause, RuntimeError::failed("pause it", "no"));
    pass(&server, &id, 100).await;
    stays(&server, &id, "Running").await;
    pass(&server, &id, 100).await;
    becomes(&server, &id, "Paused").await;
}

async fn expiry(server: &TestServer, id: &str) -> String {
    let sandbox = server.get(&format!("/v1/sandboxes/{id}")).await.json();
    sandbox["expiresAt"].as_str().expect("an expiry").to_owned()
}

#[tokio::test]
async fn use_puts_the_expiry_off_once_in_an_interval() {
    let server = TestServer::start().await;
    let extensions = json!({"access.renew.extend.seconds": "600"});
    let id = server.create_from(with(json!({"timeout": 300, "extensions": extensions}))).await;
    furnish(&server, &id);
    assert_eq!(expiry(&server, &id).await, "2026-01-01T00:05:00Z");
    let path = format!("/v1/sandboxes/{id}/proxy/8080/");
    let skip = server.bare_request(Method::GET, &path).header("opensandbox-access-renew", "skip");
    assert_eq!(server.send(skip.body(Full::default()).expect("one")).await.status, 200);
    assert_eq!(expiry(&server, &id).await, "2026-01-01T00:05:00Z", "it said not to");
    assert_eq!(call(&server, &id).await.status, 200);
    wait_for("the renewal", async || expiry(&server, &id).await == "2026-01-01T00:10:00Z").await;
    for seconds in [1, 58] {
        server.world.clock.advance(Duration::from_secs(seconds));
        assert_eq!(call(&server, &id).await.status, 200);
        assert_eq!(expiry(&server, &id).await, "2026-01-01T00:10:00Z", "too soon");
    }
    server.world.clock.advance(Duration::from_secs(1));
    assert_eq!(call(&server, &id).await.status, 200);
    wait_for("the next one", async || expiry(&server, &id).await == "2026-01-01T00:11:00Z").await;

    let world = server.stop().await;
    world.clock.advance(Duration::from_mins(1));
    let server = world.serve().await;
    assert_eq!(expiry(&server, &id).await, "2026-01-01T00:11:00Z", "it is written down");
    assert_eq!(call(&server, &id).await.status, 200);
    wait_for("a renewal", async || expiry(&server, &id).await == "2026-01-01T00:12:00Z").await;
}

#[tokio::test]
async fn use_never_brings_the_expiry_nearer() {
    let server = TestServer::start().await;
    let extensions = json!({"access.renew.extend.seconds": "300"});
    let id = server.create_from(with(json!({"timeout": 600, "extensions": extensions}))).await;
    furnish(&server, &id);
    assert_eq!(call(&server, &id).await.status, 200);
    assert_eq!(expiry(&server, &id).await, "2026-01-01T00:10:00Z");
}

#[tokio::test]
async fn extensions_that_mean_nothing_are_refused() {
    let server = TestServer::start().await;
    for (extensions, timeout) in [
        (json!({"access.renew.extend.seconds": "10"}), json!(600)),
        (json!({"access.renew.extend.seconds": "600"}), json!(null)),
        (json!({SECONDS: "59"}), json!(600)),
        (json!({ACTION: "delete"}), json!(600)),
    ] {
        let body = with(json!({"extensions": extensions, "timeout": timeout}));
        let answer = server.post("/v1/sandboxes", Some(body)).await;
        answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
    server.assert_empty().await;
}
