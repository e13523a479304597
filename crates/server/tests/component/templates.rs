//! Sandboxes that are prepared once and started many times.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use http::Method;
use osb_api::{TemplateId, ports};
use osb_core::{
    Runtime, RuntimeError, Snapshots,
    testkit::{Call, FakeRuntime, Line},
};
use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, World, wait_for};

/// The least that makes a template, with some fields changed.
fn template(changes: Value) -> Value {
    let mut body = json!({"image": "host", "publish": "s3://bucket/prefix"});
    let Value::Object(changes) = changes else { panic!("changes are an object") };
    body.as_object_mut().expect("an object").extend(changes);
    body
}

impl TestServer {
    async fn build(&self, changes: Value) -> String {
        let answer = self.post("/v1/templates", Some(template(changes))).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["templateId"].as_str().expect("an id").to_owned()
    }

    async fn template(&self, id: &str) -> Value {
        self.get(&format!("/v1/templates/{id}")).await.json()
    }

    async fn phase(&self, id: &str) -> String {
        self.template(id).await["status"]["phase"].as_str().expect("a phase").to_owned()
    }

    async fn wait_for_phase(&self, id: &str, phase: &str) {
        wait_for(phase, async || self.phase(id).await == phase).await;
    }

    async fn start_from(&self, id: &str, changes: Value) -> Answer {
        let mut body = json!({"templateId": id, "timeout": 600});
        let Value::Object(changes) = changes else { panic!("changes are an object") };
        body.as_object_mut().expect("an object").extend(changes);
        self.post("/v1/sandboxes", Some(body)).await
    }

    /// How many snapshots the runtime has, of whomever.
    async fn kept(&self) -> usize {
        self.world.runtime.kept().await.expect("a list").len()
    }

    async fn assert_nothing_runs(&self) {
        let runtime = &self.world.runtime;
        let none = async || runtime.list().await.expect("a list").is_empty();
        wait_for("the end of the sandbox", none).await;
    }
}

/// execd in every sandbox: every command ends with this code.
#[derive(Clone)]
struct Commands {
    code: Arc<AtomicI32>,
    asked: Arc<AtomicUsize>,
}

impl Commands {
    fn everywhere(runtime: &FakeRuntime, code: i32) -> Self {
        let commands =
            Self { code: Arc::new(AtomicI32::new(code)), asked: Arc::new(AtomicUsize::new(0)) };
        let theirs = commands.clone();
        runtime.listen_everywhere(ports::EXECD, move |line| {
            let commands = theirs.clone();
            // One that is not asked is hung up on.
            let serve = move || commands.serve(line).ok();
            thread::Builder::new().spawn(serve).expect("a thread");
        });
        commands
    }

    fn end_with(&self, code: i32) {
        self.code.store(code, Ordering::SeqCst);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn serve(&self, mut line: Line) -> io::Result<()> {
        let mut reader = BufReader::new(line.clone());
        let (mut text, mut length) = (String::new(), 0);
        while reader.read_line(&mut text)? > 2 {
            if let Some(value) = text.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            text.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let event = match self.code.load(Ordering::SeqCst) {
            0 => json!({"type": "execution_complete", "timestamp": 1}),
            code => json!({"type": "error", "timestamp": 1, "error": {
                "ename": "CommandExecError", "evalue": code.to_string(), "traceback": [],
            }}),
        };
        self.asked.fetch_add(1, Ordering::SeqCst);
        let body = format!("{event}\n");
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
        write!(line, "{head} {}\r\n\r\n{body}", body.len())
    }
}

#[tokio::test]
async fn a_template_is_built_once_and_sandboxes_start_from_it() {
    let server = TestServer::start().await;
    let commands = Commands::everywhere(&server.world.runtime, 7);
    let asked = template(json!({
        "entrypoint": ["sleep", "inf"], "env": {"LEVEL": "info"}, "metadata": {"team": "a"},
        "resourceLimits": {"memory": "64Mi"}, "readiness": {"probe": "test -e /ready"},
        "format": "native",
    }));
    let answer = server.post("/v1/templates", Some(asked.clone())).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let made = answer.json();
    let id = made["templateId"].as_str().expect("an id");
    assert!(id.starts_with("tpl-"), "{id}");
    assert_eq!(answer.header("location"), Some(&*format!("/v1/templates/{id}")));
    assert_eq!(made["status"], json!({"phase": "Pending"}));
    for (field, value) in asked.as_object().expect("an object") {
        assert_eq!(&made[field], value, "{field}");
    }

    // It is not ready, and nobody else hears of it.
    wait_for("the second try", async || commands.asked() >= 2).await;
    assert_eq!(server.phase(id).await, "Building");
    assert_eq!(server.get("/v1/sandboxes").await.json()["items"], json!([]));
    let runtime = &server.world.runtime;
    let builder = runtime.list().await.expect("a list").first().expect("a sandbox").id;
    server.get(&format!("/v1/sandboxes/{builder}")).await.refusal(404, "DOCKER::SANDBOX_NOT_FOUND");
    runtime.write_file(builder, "/ready", "12345");
    commands.end_with(0);
    server.wait_for_phase(id, "Succeeded").await;
    server.assert_nothing_runs().await;
    let status = server.template(id).await["status"].clone();
    let manifest = status["manifestRef"].as_str().expect("a reference");
    let snapshot = manifest.strip_prefix("snapshot:").expect("a snapshot");
    let path = format!("/v1/snapshots/{snapshot}");
    server.get(&path).await.refusal(404, "SNAPSHOT::NOT_FOUND");
    server.delete(&path).await.refusal(404, "SNAPSHOT::NOT_FOUND");
    assert_eq!(server.get("/v1/snapshots").await.json()["items"], json!([]));
    let body = json!({"snapshotId": snapshot, "resourceLimits": {}});
    server.post("/v1/sandboxes", Some(body)).await.refusal(404, "SNAPSHOT::NOT_FOUND");

    let answer = server.start_from(id, json!({"metadata": {"job": "1"}})).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let sandbox = answer.json()["id"].as_str().expect("an id").to_owned();
    let shown = server.get(&format!("/v1/sandboxes/{sandbox}")).await.json();
    assert_eq!(shown["entrypoint"], json!(["sleep", "inf"]));
    assert_eq!(
        (&shown["image"]["uri"], &shown["metadata"]),
        (&json!("host"), &json!({"job": "1"}))
    );
    assert!(shown.get("snapshotId").is_none(), "{shown}");
    let spec = runtime.spec(sandbox.parse().expect("an id")).expect("a spec");
    assert_eq!(spec.env.get("LEVEL").map(String::as_str), Some("info"));
    assert_eq!(spec.resources.memory.map(osb_core::Memory::bytes), Some(64 << 20));
    let file = runtime.read_file(sandbox.parse().expect("an id"), "/ready");
    assert_eq!(file.as_deref(), Some("12345"));
    let endpoint = server.get(&format!("/v1/sandboxes/{sandbox}/endpoints/44772")).await;
    assert_eq!(endpoint.header("open-sandbox-origin"), Some("template"));
    let plain = server.create().await;
    let endpoint = server.get(&format!("/v1/sandboxes/{plain}/endpoints/44772")).await;
    assert_eq!(endpoint.header("open-sandbox-origin"), None);

    let answer = server.delete(&format!("/v1/templates/{id}")).await;
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    assert_eq!(server.kept().await, 0);
    assert_eq!(server.state(&sandbox).await, "Running");
    server.start_from(id, json!({})).await.refusal(404, "FSB::TEMPLATE_NOT_FOUND");
    let endpoint = server.get(&format!("/v1/sandboxes/{sandbox}/endpoints/18080")).await;
    assert_eq!(endpoint.header("open-sandbox-origin"), Some("template"));
}

#[tokio::test]
async fn a_port_can_say_that_a_sandbox_is_ready() {
    let server = TestServer::start().await;
    let id = server.build(json!({"readiness": {"probe": "tcp://127.0.0.1:8000"}})).await;
    wait_for("a try", async || server.world.runtime.calls(Call::Dial) > 0).await;
    assert_eq!(server.phase(&id).await, "Building");
    let builder = server.world.runtime.list().await.expect("a list")[0].id;
    server.world.runtime.listen(builder, 8000, drop);
    server.wait_for_phase(&id, "Succeeded").await;
}

#[tokio::test]
async fn what_a_template_says_nobody_says_again() {
    let server = TestServer::start().await;
    let id = server.build(json!({})).await;
    server.wait_for_phase(&id, "Succeeded").await;
    for changes in [
        json!({"image": {"uri": "host"}}),
        json!({"snapshotId": "x"}),
        json!({"entrypoint": ["x"]}),
        json!({"env": {}}),
        json!({"resourceLimits": {}}),
        json!({"resourceRequests": {}}),
        json!({"volumes": []}),
        json!({"platform": {"os": "linux", "arch": "amd64"}}),
        json!({"credentialProxy": {"enabled": true}, "networkPolicy": {}}),
        json!({"secureAccess": true}),
        json!({"lifecycle": {"preStart": {"command": ["x"]}}}),
        json!({"timeout": null}),
    ] {
        let answer = server.start_from(&id, changes.clone()).await;
        let message = answer.refusal(422, "SANDBOX::INVALID_PARAMETER");
        assert!(message.contains("template"), "{changes}: {message}");
    }
    let policy = json!({"networkPolicy": {"defaultAction": "deny"}, "extensions": {}});
    assert_eq!(server.start_from(&id, policy).await.status, 202);
    let unknown = TemplateId::random().to_string();
    for unknown in [unknown.as_str(), "x", "tpl-x", "a%2Fb"] {
        server.start_from(unknown, json!({})).await.refusal(404, "FSB::TEMPLATE_NOT_FOUND");
        let path = format!("/v1/templates/{unknown}");
        server.get(&path).await.refusal(404, "FSB::TEMPLATE_NOT_FOUND");
        server.delete(&path).await.refusal(404, "FSB::TEMPLATE_NOT_FOUND");
    }
    let blank = crate::harness::with(json!({"templateId": " "}));
    assert_eq!(server.post("/v1/sandboxes", Some(blank)).await.status, 202);
}

#[tokio::test]
async fn what_cannot_be_a_template_is_refused() {
    let server = TestServer::start().await;
    let invalid = "SANDBOX::INVALID_PARAMETER";
    for (changes, code) in [
        (json!({"image": " "}), invalid),
        (json!({"publish": ""}), invalid),
        (json!({"publish": "x".repeat(1025)}), invalid),
        (json!({"size": 1}), invalid),
        (json!({"resourceLimits": {"gpu": "1"}}), invalid),
        (json!({"resourceLimits": {"storage": "1Gi"}}), invalid),
        (json!({"resourceLimits": {"memory": "much"}}), invalid),
        (json!({"env": {"1A": "x"}}), invalid),
        (json!({"env": {"A-B": "x"}}), invalid),
        (json!({"entrypoint": [""]}), "DOCKER::INVALID_ENTRYPOINT"),
        (json!({"metadata": {"a b": "c"}}), "SANDBOX::INVALID_METADATA_LABEL"),
        (json!({"readiness": {"probe": "http://127.0.0.1"}}), invalid),
        (json!({"readiness": {"warmupSeconds": 3601}}), invalid),
        (json!({"readiness": {"warmupSeconds": -1}}), invalid),
        (json!({"readiness": {"timeout": 1}}), invalid),
        (json!({"format": "qcow2"}), invalid),
    ] {
        let answer = server.post("/v1/templates", Some(template(changes.clone()))).await;
        assert_eq!(answer.status, 400, "{changes}");
        answer.refusal(400, code);
    }
    assert_eq!(server.get("/v1/templates").await.json()["items"], json!([]));
    server.assert_empty().await;
}

#[tokio::test]
async fn a_template_that_fails_says_why_and_leaves_nothing() {
    let server = TestServer::start().await;
    let failure = RuntimeError::failed("cannot keep the files", "the disk is full");
    server.world.runtime.fail_next(Call::TakeSnapshot, failure);
    let unkept = server.build(json!({})).await;
    server.wait_for_phase(&unkept, "Failed").await;
    let ended = server.build(json!({"entrypoint": ["sh", "-c", "exit 3"]})).await;
    let missing = server.build(json!({"image": "missing"})).await;
    for (id, why) in [(&unkept, "snapshot"), (&ended, "ended"), (&missing, "missing")] {
        server.wait_for_phase(id, "Failed").await;
        let status = server.template(id).await["status"].clone();
        let message = status["message"].as_str().expect("a message");
        assert!(message.contains(why), "{message}");
        assert!(!message.contains("disk"), "the cause is for the log: {message}");
        assert!(status.get("manifestRef").is_none(), "{status}");
        server.start_from(id, json!({})).await.refusal(409, "FSB::TEMPLATE_CONFLICT");
        assert_eq!(server.delete(&format!("/v1/templates/{id}")).await.status, 204);
    }
    server.assert_nothing_runs().await;
    assert_eq!(server.kept().await, 0);
}

#[tokio::test]
async fn a_sandbox_that_ends_before_it_is_ready_fails_its_template() {
    let server = TestServer::start().await;
    let commands = Commands::everywhere(&server.world.runtime, 1);
    let id = server.build(json!({"readiness": {"probe": "false"}})).await;
    wait_for("a try", async || commands.asked() > 0).await;
    let builder = server.world.runtime.list().await.expect("a list")[0].id;
    server.world.runtime.end(builder, osb_core::Exit::Code(4));
    server.wait_for_phase(&id, "Failed").await;
    server.assert_nothing_runs().await;
}

#[tokio::test]
async fn a_template_that_is_being_built_is_left_alone() {
    let server = TestServer::start().await;
    let gate = server.world.runtime.hold_ensures();
    let id = server.build(json!({})).await;
    wait_for("the gate", async || gate.waiting() == 1).await;
    let answer = server.delete(&format!("/v1/templates/{id}")).await;
    answer.refusal(409, "FSB::TEMPLATE_CONFLICT");
    server.start_from(&id, json!({})).await.refusal(409, "FSB::TEMPLATE_CONFLICT");
    gate.open();
    server.wait_for_phase(&id, "Succeeded").await;
}

#[tokio::test]
async fn templates_are_listed_newest_first_and_filtered() {
    let server = TestServer::start().await;
    let mut ids = Vec::new();
    for team in ["a", "b", "a"] {
        server.world.clock.advance(Duration::from_secs(1));
        ids.insert(0, server.build(json!({"metadata": {"team": team, "x": "y"}})).await);
    }
    let list = async |query: &str| {
        let answer = server.get(&format!("/v1/templates?{query}")).await.json();
        let items = answer["items"].as_array().expect("items").clone();
        items.iter().map(|item| item["templateId"].as_str().expect("an id").to_owned()).collect()
    };
    let all: Vec<String> = list("").await;
    assert_eq!(all, ids);
    let some: Vec<String> = list("metadata=team%3Da%26x%3Dy").await;
    assert_eq!(some, [ids[0].clone(), ids[2].clone()]);
    let page: Vec<String> = list("page=2&pageSize=2").await;
    assert_eq!(page, [ids[2].clone()]);
    let answer = server.get("/templates?pageSize=201").await;
    answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
}

#[tokio::test]
async fn a_template_outlives_the_server_and_one_that_is_unfinished_is_built_again() {
    let server = TestServer::start().await;
    let done = server.build(json!({})).await;
    server.wait_for_phase(&done, "Succeeded").await;
    let lost = server.build(json!({})).await;
    server.wait_for_phase(&lost, "Succeeded").await;
    let manifest = server.template(&lost).await["status"]["manifestRef"].clone();
    let files = manifest.as_str().and_then(|text| text.strip_prefix("snapshot:"));
    let files = files.expect("a snapshot").parse().expect("an id");
    // One is about to be kept when the server ends, and the files of one go then.
    let shutter = server.world.runtime.hold_snapshots();
    let unfinished = server.build(json!({})).await;
    wait_for("the shutter", async || shutter.waiting() == 1).await;
    let world = server.stop().await;
    shutter.open();
    Snapshots::delete(&world.runtime, files).await.expect("a deletion");

    let server = world.serve().await;
    server.wait_for_phase(&unfinished, "Succeeded").await;
    server.wait_for_phase(&lost, "Failed").await;
    assert_eq!(server.phase(&done).await, "Succeeded");
    assert_eq!(server.start_from(&unfinished, json!({})).await.status, 202);
    let sandbox = server.start_from(&done, json!({})).await.json()["id"].clone();
    wait_for("the sweep", async || server.kept().await == 2).await;
    let world = server.stop().await;

    let server = world.serve().await;
    let sandbox = sandbox.as_str().expect("an id");
    let endpoint = server.get(&format!("/v1/sandboxes/{sandbox}/endpoints/44772")).await;
    assert_eq!(endpoint.header("open-sandbox-origin"), Some("template"));
    assert_eq!(server.world.runtime.list().await.expect("a list").len(), 2);
}

#[tokio::test]
async fn a_runtime_that_keeps_nothing_has_no_templates() {
    let mut world = World::new();
    world.runtime = world.runtime.without_snapshots();
    let server = world.serve().await;
    for method in [Method::GET, Method::DELETE] {
        let path = format!("/v1/templates/{}", TemplateId::random());
        server.call(method, &path, None).await.refusal(501, "FSB::API_NOT_SUPPORTED");
    }
    server.get("/v1/templates").await.refusal(501, "FSB::API_NOT_SUPPORTED");
    let answer = server.post("/v1/templates", Some(template(json!({})))).await;
    answer.refusal(501, "FSB::API_NOT_SUPPORTED");
    server.start_from("tpl-x", json!({})).await.refusal(400, "FSB::API_NOT_SUPPORTED");
}
