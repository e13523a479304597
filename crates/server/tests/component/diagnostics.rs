//! What happened to a sandbox and what it printed, as those see it who look for a fault.

use std::{
    io::{BufRead, BufReader, Write},
    thread,
    time::Duration,
};

use http::Method;
use osb_core::{
    Exit, RuntimeError,
    testkit::{Call, Line},
};
use osb_server::RawConfig;
use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, World, wait_for, with};

async fn ask(server: &TestServer, id: &str, what: &str) -> Answer {
    let answer = server.get(&format!("/v1/sandboxes/{id}/diagnostics/{what}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

/// The descriptor, whose numbers must be right.
async fn described(server: &TestServer, id: &str, what: &str) -> Value {
    let described = ask(server, id, what).await.json();
    assert_eq!((&described["sandboxId"], &described["delivery"]), (&json!(id), &json!("inline")));
    let content = described["content"].as_str().expect("text");
    assert_eq!(described["contentLength"], content.len());
    assert_eq!(described["contentType"], "text/plain; charset=utf-8");
    described
}

async fn text(server: &TestServer, id: &str, what: &str) -> String {
    let answer = ask(server, id, what).await;
    assert_eq!(answer.header("deprecation"), Some("true"));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    String::from_utf8(answer.body.to_vec()).expect("text")
}

/// The words of the events of a scope, in order.
async fn words(server: &TestServer, id: &str, scope: &str) -> Vec<String> {
    let described = described(server, id, &format!("events?scope={scope}")).await;
    let content = described["content"].as_str().expect("text");
    let word = |line: &str| line.split(' ').nth(2).expect("a word").to_owned();
    content.lines().map(word).collect()
}

/// Has execd of a sandbox say this, whatever it is asked.
fn print(server: &TestServer, id: &str, head: &str, body: impl Into<Vec<u8>>) {
    let (head, body) = (head.to_owned(), body.into());
    let serve = move |mut line: Line| {
        let (head, body) = (head.clone(), body.clone());
        thread::spawn(move || {
            let mut reader = BufReader::new(line.clone());
            let mut asked = String::new();
            while reader.read_line(&mut asked).is_ok_and(|length| length > 2) {}
            assert!(asked.starts_with("GET /entrypoint/logs"), "{asked}");
            assert!(asked.to_ascii_lowercase().contains("x-execd-access-token: "), "{asked}");
            let length = body.len();
            let head = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n");
            // Who has heard enough hangs up.
            line.write_all(head.as_bytes()).and_then(|()| line.write_all(&body)).ok();
        });
    };
    server.world.runtime.listen(id.parse().expect("an id"), 44772, serve);
}

#[tokio::test]
async fn the_events_tell_what_happened_in_order_and_after_a_restart() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}");
    for end in ["2099-01-01T00:00:00Z", "2099-01-02T00:00:00Z"] {
        let body = Some(json!({"expiresAt": end}));
        assert_eq!(server.post(&format!("{path}/renew-expiration"), body).await.status, 200);
    }
    let labels = Some(json!({"a": "1"}));
    let changed = server.call(Method::PATCH, &format!("{path}/metadata"), labels).await;
    assert_eq!(changed.status, 200);
    let policy = Some(json!({"defaultAction": "deny", "egress": []}));
    let changed = server.call(Method::PUT, &format!("{path}/networkpolicy"), policy).await;
    assert_eq!(changed.status, 200);
    assert_eq!(server.post(&format!("{path}/snapshots"), None).await.status, 202);
    let fail = || RuntimeError::failed("no room", "none");
    server.world.runtime.fail_next(Call::TakeSnapshot, fail());
    assert_eq!(server.post(&format!("{path}/snapshots"), None).await.status, 500);
    server.world.runtime.fail_next(Call::Pause, fail());
    assert_eq!(server.post(&format!("{path}/pause"), None).await.status, 500);
    wait_for("the sandbox", async || server.state(&id).await == "Running").await;
    assert_eq!(server.post(&format!("{path}/pause"), None).await.status, 202);
    assert_eq!(server.post(&format!("{path}/resume"), None).await.status, 202);
    server.world.runtime.run_out_of_memory(id.parse().expect("an id"));
    let told = async || {
        words(&server, &id, "runtime").await.last().map(String::as_str) == Some("OUT_OF_MEMORY")
    };
    wait_for("the lack of memory", told).await;

    let lifecycle = [
        "CONTAINER_STARTING",
        "CONTAINER_RUNNING",
        "RENEWED",
        "METADATA_CHANGED",
        "POLICY_CHANGED",
        "SNAPSHOT_TAKEN",
        "SNAPSHOT_FAILED",
        "USER_REQUEST",
        "PAUSE_FAILED",
        "CONTAINER_RUNNING",
        "USER_REQUEST",
        "CONTAINER_PAUSED",
        "USER_REQUEST",
        "CONTAINER_RUNNING",
        "OUT_OF_MEMORY",
    ];
    let requests =
        ["RENEWED", "METADATA_CHANGED", "POLICY_CHANGED", "USER_REQUEST"].map(str::to_owned);
    let before = words(&server, &id, "LifeCycle").await;
    assert_eq!(before, lifecycle);
    let runtime: Vec<_> = before.iter().filter(|word| !requests.contains(word)).cloned().collect();
    assert_eq!(words(&server, &id, "runtime").await, runtime);
    assert_eq!(words(&server, &id, "all").await, before);
    assert_eq!(words(&server, &id, "network").await, Vec::<String>::new());
    let all = text(&server, &id, "events").await;
    assert!(all.contains("expires at 2099-01-02T00:00:00Z (2 times)\n"), "{all}");

    let server = server.stop().await.serve().await;
    assert_eq!(text(&server, &id, "events").await, all);
    assert_eq!(server.post(&format!("{path}/pause"), None).await.status, 202);
    assert_eq!(words(&server, &id, "lifecycle").await.len(), before.len() + 2);
    assert_eq!(server.delete(&path).await.status, 204);
    server
        .get(&format!("{path}/diagnostics/events"))
        .await
        .refusal(404, "DOCKER::SANDBOX_NOT_FOUND");
}

#[tokio::test]
async fn only_the_latest_events_are_kept_and_shown() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}");
    // Renewals in a row are one event; these are not in a row.
    for number in 0..110 {
        let body = Some(json!({"expiresAt": "2099-01-01T00:00:00Z"}));
        assert_eq!(server.post(&format!("{path}/renew-expiration"), body).await.status, 200);
        let labels = Some(json!({"a": number.to_string()}));
        let changed = server.call(Method::PATCH, &format!("{path}/metadata"), labels).await;
        assert_eq!(changed.status, 200);
    }
    let server = server.stop().await.serve().await;
    let kept = described(&server, &id, "events?scope=lifecycle&limit=500").await;
    assert_eq!(kept["content"].as_str().expect("text").lines().count(), 200);
    assert_eq!(kept["truncated"], false);
    assert_eq!(kept["warnings"], json!(["22 earlier events were forgotten"]));
    let shown = described(&server, &id, "events?scope=lifecycle").await;
    assert_eq!(shown["content"].as_str().expect("text").lines().count(), 50);
    assert_eq!(shown["truncated"], true);
    let last = text(&server, &id, "events?limit=1").await;
    assert!(last.ends_with("the sandbox now has 1 labels\n"), "{last}");
}

#[tokio::test]
async fn the_logs_are_what_the_entrypoint_printed_last() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let lines: Vec<_> = (1..=150).map(|number| format!("line {number}\n")).collect();
    print(&server, &id, "200 OK", lines.concat());
    for scope in ["container", "ALL"] {
        let logs = described(&server, &id, &format!("logs?scope={scope}")).await;
        assert_eq!((&logs["kind"], &logs["truncated"]), (&json!("logs"), &json!(true)));
        assert_eq!(logs["scope"], scope.to_lowercase());
        let content = logs["content"].as_str().expect("text");
        assert!(content.starts_with("line 51\n") && content.ends_with("line 150\n"), "{content}");
        assert_eq!(logs.get("warnings"), None);
    }
    assert_eq!(described(&server, &id, "logs?scope=all&tail=150").await["truncated"], false);
    assert_eq!(text(&server, &id, "logs?tail=2").await, "line 149\nline 150\n");
    let since = text(&server, &id, "logs?tail=1&since=10m").await;
    assert_eq!(since.lines().last(), Some("line 150"));
    assert!(since.starts_with("warning: "), "this execd cannot tell when: {since}");
}

#[tokio::test]
async fn whatever_execd_answers_there_are_logs() {
    let world = World::new();
    let quick = |config: &mut osb_server::Config| config.patience = Duration::from_millis(500);
    let server = world.serve_as(RawConfig::default(), quick).await;
    let id = server.create().await;
    let parsed = id.parse().expect("an id");
    let warned = async |content: &str| {
        let logs = described(&server, &id, "logs?scope=all").await;
        assert_eq!(logs["content"], content);
        logs["warnings"][0].as_str().expect("a warning").to_owned()
    };
    // A line without an end, and more than anybody reads.
    print(&server, &id, "200 OK", vec![b'x'; 8 << 20]);
    let logs = described(&server, &id, "logs?scope=all").await;
    assert_eq!((&logs["contentLength"], &logs["truncated"]), (&json!(1 << 20), &json!(true)));
    print(&server, &id, "200 OK", b"\xff\xfe\n");
    assert_eq!(described(&server, &id, "logs?scope=all").await["content"], "\u{fffd}\u{fffd}\n");
    print(&server, &id, "500 No", "secret");
    assert!(warned("").await.contains("500"));
    print(&server, &id, "nonsense", "");
    assert!(warned("").await.contains("broke off"));
    // Nobody ever answers.
    let unanswered = std::sync::Mutex::new(Vec::new());
    let hold = move |line| unanswered.lock().expect("a list").push(line);
    server.world.runtime.listen(parsed, 44772, hold);
    assert!(warned("").await.contains("in time"));
}

#[tokio::test]
async fn nobody_waits_for_the_logs_of_a_sandbox_that_is_paused_or_over() {
    let server = TestServer::start().await;
    let id = server.create().await;
    server.world.runtime.print(id.parse().expect("an id"), "hello\n");
    assert_eq!(server.post(&format!("/v1/sandboxes/{id}/pause"), None).await.status, 202);
    let logs = described(&server, &id, "logs?scope=container").await;
    assert_eq!(logs["content"], "hello\n");
    assert!(logs["warnings"][0].as_str().expect("a warning").contains("paused"), "{logs}");
    assert!(text(&server, &id, "summary").await.contains("warning: the sandbox is paused"));

    let id = server.create().await;
    server.world.runtime.print(id.parse().expect("an id"), "no such file\nbye\n");
    server.world.runtime.end(id.parse().expect("an id"), Exit::Code(3));
    wait_for("the end", async || server.state(&id).await == "Failed").await;
    let logs = described(&server, &id, "logs?scope=container&tail=1").await;
    assert_eq!((&logs["content"], &logs["truncated"]), (&json!("bye\n"), &json!(true)));
    assert!(logs["warnings"][0].as_str().expect("a warning").contains("exit code 3"), "{logs}");
    server.world.runtime.vanish(id.parse().expect("an id"));
    let logs = described(&server, &id, "logs?scope=container").await;
    assert_eq!((&logs["content"], &logs["truncated"]), (&json!(""), &json!(false)));
    assert!(logs["warnings"][1].as_str().expect("another").contains("not there"), "{logs}");
    assert_eq!(
        words(&server, &id, "lifecycle").await.last().expect("one"),
        "CONTAINER_EXITED_ERROR"
    );
    let about = text(&server, &id, "inspect").await;
    assert!(about.contains("Failed (CONTAINER_EXITED_ERROR)"), "{about}");
}

#[tokio::test]
async fn inspection_and_summary_tell_no_secret() {
    let server = TestServer::start().await;
    let body = with(json!({
        "env": {"PATH": "/bin", "API_TOKEN": "hunter2", "URL": "https://u:hunter2@h/"},
        "metadata": {"team": "blue"},
        "secureAccess": true,
        "resourceLimits": {"cpu": "500m", "memory": "64Mi"},
        "volumes": [{"name": "v", "mountPath": "/data", "pvc": {"claimName": "kept"}}],
        "networkPolicy": {"egress": [{"action": "allow", "target": "pypi.org"}]},
    }));
    let id = server.create_from(body).await;
    print(&server, &id, "200 OK", "one\ntwo\n");
    let endpoint = server.get(&format!("/v1/sandboxes/{id}/endpoints/44772")).await.json();
    let tokens = endpoint["headers"].as_object().expect("headers").values();
    let tokens: Vec<_> = tokens.map(|token| token.as_str().expect("a token")).collect();
    assert!(tokens.len() >= 2);
    let about = text(&server, &id, "inspect").await;
    let summary = text(&server, &id, "summary?tail=1&event_limit=1").await;
    for page in [&about, &summary] {
        for secret in tokens.iter().chain(&["hunter2"]) {
            assert!(!page.contains(secret), "{page}");
        }
        for part in [
            &*id,
            "Running",
            "PATH=/bin",
            "API_TOKEN=********",
            "team=blue",
            "limit 0.500 cores",
            "limit 67108864 bytes",
            "/data: volume kept",
            "allow pypi.org",
            r#"["tail","-f","/dev/null"]"#,
        ] {
            assert!(page.contains(part), "no {part} in {page}");
        }
    }
    assert!(summary.contains("\n== Events ==\n") && summary.ends_with("\n== Logs ==\ntwo\n"));
    assert!(!summary.contains("CONTAINER_STARTING"), "{summary}");
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused() {
    let server = TestServer::start().await;
    let id = server.create().await;
    for (what, scopes) in [
        ("logs?scope=lifecycle", "container, all"),
        ("events?scope=container", "runtime, lifecycle, network, all"),
        ("events?scope=", "runtime, lifecycle, network, all"),
    ] {
        let answer = server.get(&format!("/v1/sandboxes/{id}/diagnostics/{what}")).await;
        let message = answer.refusal(400, "DIAGNOSTICS_SCOPE_UNSUPPORTED");
        assert!(message.ends_with(scopes), "{message}");
    }
    for (what, code) in [
        ("logs?tail=0", "SANDBOX::INVALID_PARAMETER"),
        ("logs?tail=10001", "SANDBOX::INVALID_PARAMETER"),
        ("logs?scope=all&tail=x", "SANDBOX::INVALID_PARAMETER"),
        ("logs?since=soon", "SANDBOX::INVALID_PARAMETER"),
        ("logs?container=other", "SANDBOX::API_NOT_SUPPORTED"),
        ("events?limit=501", "SANDBOX::INVALID_PARAMETER"),
        ("summary?event_limit=0", "SANDBOX::INVALID_PARAMETER"),
        ("summary?tail=-1", "SANDBOX::INVALID_PARAMETER"),
    ] {
        let answer = server.get(&format!("/v1/sandboxes/{id}/diagnostics/{what}")).await;
        answer.refusal(400, code);
    }
    for what in ["logs?scope=all", "events?scope=all", "logs", "events", "inspect", "summary"] {
        for stranger in ["00000000-0000-4000-8000-000000000000", "nobody"] {
            let path = format!("/v1/sandboxes/{stranger}/diagnostics/{what}");
            server.get(&path).await.refusal(404, "DOCKER::SANDBOX_NOT_FOUND");
        }
        let path = format!("/v1/sandboxes/{id}/diagnostics/{what}");
        let request = server.bare_request(Method::GET, &path).body(http_body_util::Full::default());
        server.send(request.expect("a request")).await.refusal(401, "MISSING_API_KEY");
    }
}
