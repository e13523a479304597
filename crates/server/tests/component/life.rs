//! A sandbox's life as a client drives it.

use http::Method;
use serde_json::json;

use crate::harness::{TestServer, wait_for, with};

#[tokio::test]
async fn a_new_sandbox_runs_and_is_described_in_full() {
    let server = TestServer::start().await;
    let answer = server
        .post(
            "/v1/sandboxes",
            Some(with(json!({
                "env": {"A": "1", "B": null},
                "metadata": {"team": "a", "example.com/owner": "me"},
                "resourceLimits": {"cpu": "500m", "memory": "512Mi"},
                "extensions": {"opensandbox.extensions.x": "y", "vendor": "z"},
                "snapshotId": null, "networkPolicy": null, "volumes": [], "secureAccess": false,
            }))),
        )
        .await;
    assert_eq!(answer.status, 202);
    let created = answer.json();
    let id = created["id"].as_str().expect("an id").to_owned();
    assert_eq!(answer.header("location"), Some(format!("/v1/sandboxes/{id}").as_str()));
    let common = json!({
        "id": id,
        "status": {
            "state": "Running",
            "reason": "CONTAINER_RUNNING",
            "message": "the sandbox is running",
            "lastTransitionAt": "2026-01-01T00:00:00Z",
        },
        "metadata": {"team": "a", "example.com/owner": "me"},
        "extensions": {"opensandbox.extensions.x": "y"},
        "expiresAt": "2026-01-01T00:10:00Z",
        "createdAt": "2026-01-01T00:00:00Z",
        "entrypoint": ["tail", "-f", "/dev/null"],
    });
    assert_eq!(created, common);

    let answer = server.get(&format!("/v1/sandboxes/{id}")).await;
    assert_eq!(answer.status, 200);
    let mut shown = common;
    shown["image"] = json!({"uri": "host"});
    assert_eq!(answer.json(), shown);
    assert_eq!(server.get(&format!("/sandboxes/{id}")).await.json(), shown, "without /v1 as well");

    let spec = server.world.runtime.spec(id.parse().expect("an id")).expect("a spec");
    let env: Vec<_> = spec.env.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(env, [("A", "1"), ("OPENSANDBOX_ID", id.as_str())]);
    assert_eq!(spec.resources.cpu.map(osb_core::Cpu::millis), Some(500));
    assert_eq!(spec.resources.memory.map(osb_core::Memory::bytes), Some(512 << 20));
}

#[tokio::test]
async fn a_sandbox_tells_what_it_uses_until_it_has_ended() {
    let server = TestServer::start().await;
    let id = server.create_from(with(json!({"resourceLimits": {"disk": "1Gi"}}))).await;
    let path = format!("/v1/sandboxes/{id}/usage");
    let answer = server.get(&path).await;
    assert_eq!(answer.status, 200);
    let used = json!({"cpuTimeMs": 5, "memoryBytes": 1 << 20, "memoryPeakBytes": 2 << 20,
                      "processes": 2, "diskBytes": 4096});
    assert_eq!(answer.json(), used);
    server.world.runtime.end(id.parse().expect("an id"), osb_core::Exit::Code(0));
    server.get(&path).await.refusal(409, "DOCKER::SANDBOX_NOT_RUNNING");
    let absent = format!("/v1/sandboxes/{}/usage", osb_api::SandboxId::random());
    server.get(&absent).await.refusal(404, "DOCKER::SANDBOX_NOT_FOUND");
}

#[tokio::test]
async fn a_sandbox_that_lacks_memory_says_so_and_runs_on() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}");
    for words in ["one process was ended", "2 processes were ended"] {
        server.world.runtime.run_out_of_memory(id.parse().expect("an id"));
        wait_for("the status tells it", || async {
            let status = server.get(&path).await.json()["status"].clone();
            let message = status["message"].as_str().unwrap_or_default();
            status["state"] == "Running" && message.contains(words)
        })
        .await;
    }
}

#[tokio::test]
async fn a_sandbox_without_timeout_never_expires() {
    let server = TestServer::start().await;
    let answer = server.post("/v1/sandboxes", Some(with(json!({"timeout": null})))).await;
    let created = answer.json();
    assert_eq!(created.get("expiresAt"), None);
    let id = created["id"].as_str().expect("an id");
    server
        .post(
            &format!("/v1/sandboxes/{id}/renew-expiration"),
            Some(json!({"expiresAt": "2030-01-01T00:00:00Z"})),
        )
        .await
        .refusal(409, "DOCKER::INVALID_EXPIRATION");
}

#[tokio::test]
async fn a_single_line_entrypoint_is_split_and_the_platform_echoed() {
    let server = TestServer::start().await;
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let body = with(json!({
        "entrypoint": ["sh -c 'sleep  9'"],
        "platform": {"os": " Linux", "arch": arch.to_uppercase()},
    }));
    let created = server.post("/v1/sandboxes", Some(body)).await.json();
    assert_eq!(created["entrypoint"], json!(["sh", "-c", "sleep  9"]));
    assert_eq!(created["platform"], json!({"os": "linux", "arch": arch}));
}

#[tokio::test]
async fn a_sandbox_is_paused_resumed_and_deleted() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let at = |verb: &str| format!("/v1/sandboxes/{id}/{verb}");

    server.post(&at("resume"), None).await.refusal(409, "DOCKER::SANDBOX_NOT_PAUSED");
    let paused = server.post(&at("pause"), None).await;
    assert_eq!((paused.status, paused.header("content-length")), (202, Some("0")));
    assert_eq!(server.state(&id).await, "Paused");
    server.post(&at("pause"), None).await.refusal(409, "DOCKER::SANDBOX_NOT_RUNNING");
    server.get(&at("proxy/44772/ping")).await.refusal(409, "DOCKER::SANDBOX_NOT_RUNNING");

    let resumed = server.post(&at("resume"), None).await;
    assert_eq!((resumed.status, resumed.header("content-length")), (202, Some("0")));
    assert_eq!(server.state(&id).await, "Running");

    let deleted = server.delete(&format!("/v1/sandboxes/{id}")).await;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    server.get(&format!("/v1/sandboxes/{id}")).await.refusal(404, "DOCKER::SANDBOX_NOT_FOUND");
    server.delete(&format!("/v1/sandboxes/{id}")).await.refusal(404, "DOCKER::SANDBOX_NOT_FOUND");
    server.assert_empty().await;
}

#[tokio::test]
async fn metadata_is_merged() {
    let server = TestServer::start().await;
    let id = server.create_from(with(json!({"metadata": {"a": "1", "b": "2"}}))).await;
    let path = format!("/v1/sandboxes/{id}/metadata");
    let changes = json!({"a": null, "absent": null, "b": "3", "c": ""});
    let answer = server.call(Method::PATCH, &path, Some(changes)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["metadata"], json!({"b": "3", "c": ""}));
    assert_eq!(answer.json()["entrypoint"], json!(["tail", "-f", "/dev/null"]));
    let answer = server.call(Method::PATCH, &path, Some(json!({}))).await;
    assert_eq!(answer.json()["metadata"], json!({"b": "3", "c": ""}));
    let answer = server.call(Method::PATCH, &path, Some(json!({"b": null, "c": null}))).await;
    assert_eq!(answer.json().get("metadata"), None);

    for (changes, code) in [
        (json!({"opensandbox.io/id": "x"}), "INVALID_METADATA_LABEL"),
        (json!({"white space": "x"}), "SANDBOX::INVALID_METADATA_LABEL"),
        (json!({"a": "-"}), "SANDBOX::INVALID_METADATA_LABEL"),
        (json!({"a": 1}), "SANDBOX::INVALID_PARAMETER"),
        (json!([]), "SANDBOX::INVALID_PARAMETER"),
    ] {
        server.call(Method::PATCH, &path, Some(changes)).await.refusal(400, code);
    }
}

#[tokio::test]
async fn the_expiry_moves_to_any_moment_in_the_future() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let path = format!("/v1/sandboxes/{id}/renew-expiration");
    for (sent, kept) in [
        (json!("2026-01-01T05:00:00.123456+02:00"), "2026-01-01T03:00:00.123456Z"),
        (json!("2026-01-01T00:05:00"), "2026-01-01T00:05:00Z"),
        (json!(1_767_229_200), "2026-01-01T01:00:00Z"),
        (json!("1767229200000"), "2026-01-01T01:00:00Z"),
    ] {
        let answer = server.post(&path, Some(json!({"expiresAt": sent}))).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"expiresAt": kept})));
        let shown = server.get(&format!("/v1/sandboxes/{id}")).await.json();
        assert_eq!(shown["expiresAt"], kept);
    }
    for past in ["2026-01-01T00:00:00Z", "2020-01-01T00:00:00Z"] {
        let answer = server.post(&path, Some(json!({"expiresAt": past}))).await;
        answer.refusal(400, "DOCKER::INVALID_EXPIRATION");
    }
    for nonsense in [json!({}), json!({"expiresAt": null}), json!({"expiresAt": "soon"})] {
        let answer = server.post(&path, Some(nonsense)).await;
        answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
}

#[tokio::test]
async fn an_expired_sandbox_is_removed() {
    let server = TestServer::start().await;
    let id = server.create().await;
    // So close that the driver's timer rings at once; then the clock says that it is time.
    let path = format!("/v1/sandboxes/{id}/renew-expiration");
    server.world.clock.advance(std::time::Duration::from_secs(599));
    let soon = json!({"expiresAt": "2026-01-01T00:09:59.001Z"});
    assert_eq!(server.post(&path, Some(soon)).await.status, 200);
    server.world.clock.advance(std::time::Duration::from_secs(1));
    crate::harness::wait_for("the end", async || server.state(&id).await == "gone").await;
    server.assert_empty().await;
}
