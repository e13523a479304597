//! What sandboxes may reach, as clients read and change it.

use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use osb_core::{
    RuntimeError,
    testkit::{Call, FakeRuntime},
};
use osb_server::{Operator, RawConfig};
use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, World, wait_for, with};

/// The egress port of one sandbox.
struct Port<'a> {
    server: &'a TestServer,
    id: &'a str,
    token: String,
}

impl<'a> Port<'a> {
    async fn of(server: &'a TestServer, id: &'a str) -> Self {
        let endpoint = server.get(&format!("/v1/sandboxes/{id}/endpoints/18080")).await.json();
        let token = endpoint["headers"]["OPENSANDBOX-EGRESS-AUTH"].as_str().expect("a token");
        Self { server, id, token: token.to_owned() }
    }

    /// Calls without the API key, as clients do.
    async fn call(&self, method: Method, body: &str) -> Answer {
        let path = format!("/v1/sandboxes/{}/proxy/18080/policy", self.id);
        let request = self
            .server
            .bare_request(method, &path)
            .header("opensandbox-egress-auth", &self.token)
            .body(Full::new(Bytes::from(body.to_owned())))
            .expect("a request");
        self.server.send(request).await
    }

    async fn change(&self, method: Method, body: Value) -> Value {
        let answer = self.call(method, &body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let status = answer.json();
        assert_eq!(
            (&status["status"], &status["enforcementMode"]),
            (&json!("ok"), &json!("dns+nft"))
        );
        assert_eq!(status.get("policy"), None, "only when it is read");
        status
    }

    async fn read(&self) -> Value {
        let answer = self.call(Method::GET, "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }
}

fn rule(action: &str, target: &str) -> Value {
    json!({"action": action, "target": target})
}

async fn with_policy(server: &TestServer, policy: Value) -> String {
    server.create_from(with(json!({"networkPolicy": policy}))).await
}

#[tokio::test]
async fn a_policy_is_read_merged_and_deleted_from() {
    let server = TestServer::start().await;
    let rules = json!([rule("allow", "pypi.org"), rule("deny", " *.Example.com ")]);
    let id = with_policy(&server, json!({"defaultAction": "deny", "egress": rules})).await;
    let port = Port::of(&server, &id).await;
    assert_eq!(
        port.read().await,
        json!({
            "status": "ok", "mode": "enforcing", "enforcementMode": "dns+nft",
            "policy": {
                "defaultAction": "deny",
                "egress": [rule("allow", "pypi.org"), rule("deny", "*.Example.com")],
            },
        })
    );

    let incoming =
        json!([rule("allow", "*.example.COM"), rule("allow", "a.b"), rule("deny", "A.B")]);
    assert_eq!(port.change(Method::PATCH, incoming).await["mode"], "enforcing");
    let merged =
        json!([rule("allow", "*.example.COM"), rule("allow", "a.b"), rule("allow", "pypi.org")]);
    assert_eq!(port.read().await["policy"]["egress"], merged);

    let status = port.change(Method::DELETE, json!(["nobody.example", ""])).await;
    assert_eq!(status["reason"], "no matching targets found");
    let status = port.change(Method::DELETE, json!(["PYPI.org", "nobody.example"])).await;
    assert_eq!(status.get("reason"), None);
    assert_eq!(port.read().await["policy"]["egress"].as_array().expect("a list").len(), 2);

    let status = port.change(Method::PUT, json!({"defaultAction": "Allow"})).await;
    assert_eq!(status["mode"], "allow_all");
    let with_ports = json!([{"action": "allow", "target": "db.example.com", "ports": [5432]}]);
    port.change(Method::POST, json!({"egress": with_ports})).await;
    assert_eq!(port.read().await["policy"], json!({"defaultAction": "deny", "egress": with_ports}));
}

#[tokio::test]
async fn the_operators_rules_are_shown_to_those_with_the_key_alone() {
    let raw = toml::from_str("allow = ['pypi.org']\ndeny = ['*.Tracker.example']");
    let operator = Operator::new(&raw.expect("settings")).expect("an operator");
    let server =
        World::new().serve_as(RawConfig::default(), |config| config.egress = operator).await;
    let id = server.create().await;
    let shown = server.get(&format!("/v1/sandboxes/{id}/networkpolicy")).await.json();
    let rules = json!([rule("deny", "*.Tracker.example"), rule("allow", "pypi.org")]);
    assert_eq!((&shown["operator"], &shown["status"]), (&rules, &json!("ok")));
    assert_eq!(Port::of(&server, &id).await.read().await.get("operator"), None);
}

#[tokio::test]
async fn what_sandboxes_without_a_policy_reach_can_be_asked() {
    let raw = toml::from_str("default = 'deny'\nallow = ['pypi.org']");
    let operator = Operator::new(&raw.expect("settings")).expect("an operator");
    let server =
        World::new().serve_as(RawConfig::default(), |config| config.egress = operator).await;
    let told = server.get("/v1/networkpolicy").await.json();
    assert_eq!(told["policy"], json!({"defaultAction": "deny", "egress": []}));
    assert_eq!(told["operator"], json!([rule("allow", "pypi.org")]));
    let request = server.bare_request(Method::GET, "/v1/networkpolicy").body(Full::default());
    server.send(request.expect("a request")).await.refusal(401, "MISSING_API_KEY");
}

#[tokio::test]
async fn an_object_adds_rules_and_changes_the_default() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let port = Port::of(&server, &id).await;
    let whole = rule("deny", "a.example");
    port.change(Method::PUT, json!({"defaultAction": "allow", "egress": [whole]})).await;
    let one = json!({"action": "allow", "target": "A.example", "ports": [443]});
    port.change(Method::PATCH, json!({"egress": [one]})).await;
    port.change(Method::PATCH, json!({"defaultAction": "deny"})).await;
    let after = json!({"defaultAction": "deny", "egress": [one, whole]});
    assert_eq!(port.read().await["policy"], after);
    port.call(Method::PATCH, r#"{"default": "deny"}"#)
        .await
        .refusal(400, "SANDBOX::INVALID_PARAMETER");
}

#[tokio::test]
async fn a_rule_that_cannot_be_meant_is_wrong_for_every_sandbox() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let port = Port::of(&server, &id).await;
    let message = async |path: &str| {
        let rule = json!([{"action": "allow", "target": "a.example", "paths": [path]}]);
        let answer = port.call(Method::PATCH, &rule.to_string()).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        answer.json()["message"].as_str().expect("a message").to_owned()
    };
    let meant = message("/x").await;
    assert!(meant.contains("osb sandbox create --policy FILE"), "{meant}");
    let unmeant = message("no/slash").await;
    assert!(unmeant.contains("`paths` cannot be meant"), "{unmeant}");
}

#[tokio::test]
async fn a_reset_denies_everything_and_shows_an_empty_list() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let port = Port::of(&server, &id).await;
    let nothing = json!({"defaultAction": "deny", "egress": []});
    for body in ["", "{}", "null", r#"{"egress": null}"#] {
        port.change(Method::PUT, json!({"defaultAction": "allow"})).await;
        let answer = port.call(Method::POST, body).await;
        assert_eq!((answer.status, &answer.json()["mode"]), (200, &json!("deny_all")), "{body:?}");
        assert_eq!(answer.json().get("reason").is_some(), body.is_empty(), "{body:?}");
        assert_eq!(port.read().await["policy"], nothing, "{body:?}");
    }
}

#[tokio::test]
async fn without_a_policy_the_operator_decides_what_is_shown() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let port = Port::of(&server, &id).await;
    let status = port.read().await;
    assert_eq!(
        (&status["mode"], &status["policy"]["defaultAction"]),
        (&json!("allow_all"), &json!("allow"))
    );
    port.change(Method::PATCH, json!([rule("deny", "a.example")])).await;
    let denied = json!({"defaultAction": "allow", "egress": [rule("deny", "a.example")]});
    assert_eq!(port.read().await["policy"], denied);

    let raw = toml::from_str("default = 'deny'\nmax-rules = 2").expect("settings");
    let operator = Operator::new(&raw).expect("an operator");
    let server =
        World::new().serve_as(RawConfig::default(), |config| config.egress = operator).await;
    let id = server.create().await;
    let port = Port::of(&server, &id).await;
    assert_eq!(port.read().await["mode"], "deny_all");
    let three = json!([rule("allow", "a.b"), rule("allow", "b.c"), rule("allow", "c.d")]);
    let answer = port.call(Method::PATCH, &three.to_string()).await;
    answer.refusal(413, "EGRESS::TOO_MANY_RULES");
    let answer =
        server.post("/v1/sandboxes", Some(with(json!({"networkPolicy": {"egress": three}})))).await;
    answer.refusal(413, "EGRESS::TOO_MANY_RULES");
}

#[tokio::test]
async fn four_thousand_and_ninety_six_rules_are_enough() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let port = Port::of(&server, &id).await;
    let rules: Vec<_> = (0..4096).map(|n| rule("allow", &format!("h{n}.example"))).collect();
    port.change(Method::PUT, json!({"egress": rules})).await;
    let one_more = json!([rule("allow", "one.more")]).to_string();
    port.call(Method::PATCH, &one_more).await.refusal(413, "EGRESS::TOO_MANY_RULES");
    port.change(Method::PATCH, json!([rule("deny", "h7.example")])).await;
    assert_eq!(port.read().await["policy"]["egress"].as_array().expect("rules").len(), 4096);
}

#[tokio::test]
async fn the_lifecycle_route_does_the_same_with_the_key() {
    let server = TestServer::start().await;
    let id = server.create().await;
    for mount in ["", "/v1"] {
        let path = format!("{mount}/sandboxes/{id}/networkpolicy");
        let change = async |method, body| {
            let answer = server.call(method, &path, Some(body)).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.json()
        };
        let policy = json!({"defaultAction": "deny", "egress": [rule("allow", "a.example")]});
        assert_eq!(change(Method::PUT, policy.clone()).await["policy"], policy);
        let status = change(Method::PATCH, json!([rule("deny", "10.0.0.0/8")])).await;
        assert_eq!(status["policy"]["egress"][0], rule("deny", "10.0.0.0/8"));
        let status = change(Method::DELETE, json!(["10.0.0.0/8", "a.example"])).await;
        assert_eq!(
            (&status["mode"], &status["policy"]["egress"]),
            (&json!("deny_all"), &json!([]))
        );
        assert_eq!(server.get(&path).await.json()["policy"], status["policy"]);
        let answer = server.post(&path, Some(json!({}))).await;
        answer.refusal(405, "GENERAL::METHOD_NOT_ALLOWED");
        assert!(answer.header("allow").is_some_and(|allow| allow.contains("PATCH")), "{answer:?}");
    }
    let nobody = "/v1/sandboxes/00000000-0000-4000-8000-000000000000/networkpolicy";
    server.get(nobody).await.refusal(404, "DOCKER::SANDBOX_NOT_FOUND");
    let patch = Some(json!([rule("allow", "a.b")]));
    let answer = server.call(Method::PATCH, nobody, patch).await;
    answer.refusal(404, "DOCKER::SANDBOX_NOT_FOUND");
    let request = server
        .bare_request(Method::GET, &format!("/v1/sandboxes/{id}/networkpolicy"))
        .body(Full::default())
        .expect("a request");
    server.send(request).await.refusal(401, "MISSING_API_KEY");
}

#[tokio::test]
async fn the_port_asks_for_its_token_and_knows_its_paths() {
    let server = TestServer::start().await;
    let (id, other) = (server.create().await, server.create().await);
    let mut port = Port::of(&server, &id).await;
    let answer = port.call(Method::OPTIONS, "").await;
    answer.refusal(405, "GENERAL::METHOD_NOT_ALLOWED");
    assert_eq!(answer.header("allow"), Some("GET, POST, PUT, PATCH, DELETE"));
    for token in [String::new(), "x".repeat(32), Port::of(&server, &other).await.token] {
        port.token = token;
        port.call(Method::GET, "").await.refusal(401, "EGRESS::UNAUTHORIZED");
        port.call(Method::PATCH, "[]").await.refusal(401, "EGRESS::UNAUTHORIZED");
    }
    let below = |path: &str| format!("/v1/sandboxes/{id}/proxy/18080{path}");
    let healthy = server.get(&below("/healthz")).await;
    assert_eq!((healthy.status, &healthy.body[..]), (200, &b"ok"[..]));
    server.get(&below("/policy")).await.refusal(401, "EGRESS::UNAUTHORIZED");
    server.get(&below("")).await.refusal(401, "EGRESS::UNAUTHORIZED");
    let token = Port::of(&server, &id).await.token;
    for path in ["", "/", "/policy/", "/policies"] {
        let request = server
            .bare_request(Method::GET, &below(path))
            .header("opensandbox-egress-auth", &token)
            .body(Full::default())
            .expect("a request");
        server.send(request).await.refusal(404, "GENERAL::NOT_FOUND");
    }
}

#[tokio::test]
async fn what_cannot_be_meant_changes_nothing() {
    let server = TestServer::start().await;
    let policy = json!({"defaultAction": "deny", "egress": [rule("allow", "a.example")]});
    let id = with_policy(&server, policy.clone()).await;
    let port = Port::of(&server, &id).await;
    for (method, body) in [
        (Method::PATCH, ""),
        (Method::PATCH, "[]"),
        (Method::PATCH, "{}"),
        (Method::PATCH, "null"),
        (Method::PATCH, r#"[{"target": "a.b"}]"#),
        (Method::PATCH, r#"[{"action": "permit", "target": "a.b"}]"#),
        (Method::PATCH, r#"[{"action": "allow", "target": ""}]"#),
        (Method::PATCH, r#"[{"action": "allow", "target": "https://a.b"}]"#),
        (Method::PATCH, r#"[{"action": "allow", "target": "a.b:443"}]"#),
        (Method::PATCH, r#"[{"action": "allow", "target": "a.b", "paths": ["/"]}]"#),
        (Method::DELETE, ""),
        (Method::DELETE, "[]"),
        (Method::DELETE, r#"{"a": 1}"#),
        (Method::PUT, r#"{"defaultAction": "none"}"#),
        (Method::PUT, "[]"),
        (Method::PUT, r#"{"egress": [{"action": "allow", "target": "*"}]}"#),
        (Method::PUT, "{"),
    ] {
        let answer = port.call(method.clone(), body).await;
        answer.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
    assert_eq!(port.read().await["policy"], policy);
    let large = format!("[{}]", " ".repeat(2 << 20));
    port.call(Method::PATCH, &large).await.refusal(413, "GENERAL::BODY_TOO_LARGE");
    for policy in [
        json!({"defaultAction": "none"}),
        json!({"egress": [rule("allow", "*foo.com")]}),
        json!({"egress": [rule("allow", "127.0.0.1")]}),
        json!({"rules": []}),
    ] {
        let body = Some(with(json!({"networkPolicy": policy})));
        server.post("/v1/sandboxes", body).await.refusal(400, "SANDBOX::INVALID_PARAMETER");
    }
}

#[tokio::test]
async fn policies_outlive_the_server_and_pauses() {
    let server = TestServer::start().await;
    let id = with_policy(&server, json!({"egress": [rule("allow", "a.example")]})).await;
    let bare = server.create().await;
    let path = format!("/v1/sandboxes/{id}");
    assert_eq!(server.post(&format!("{path}/pause"), None).await.status, 202);
    wait_for("the pause", async || server.state(&id).await == "Paused").await;
    let port = Port::of(&server, &id).await;
    port.change(Method::PATCH, json!([{"action": "allow", "target": "b.example", "ports": [22]}]))
        .await;
    let before = (port.read().await, port.token);
    assert_eq!(server.world.runtime.calls(Call::Outlets), 2);

    let server = server.stop().await.serve().await;
    let port = Port::of(&server, &id).await;
    assert_eq!((port.read().await, port.token), before);
    assert_eq!(Port::of(&server, &bare).await.read().await["mode"], "allow_all");
    wait_for("both to be attended again", async || server.world.runtime.calls(Call::Outlets) == 4)
        .await;
    assert_eq!(server.post(&format!("{path}/resume"), None).await.status, 202);
    for id in [&id, &bare] {
        assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).await.status, 204);
    }
    server.assert_empty().await;
}

#[tokio::test]
async fn changes_at_the_same_time_are_all_made() {
    let server = TestServer::start().await;
    let id = server.create().await;
    let port = Port::of(&server, &id).await;
    let changes = (0..20).map(|n| {
        let body = json!([rule("deny", &format!("h{n}.example"))]);
        port.change(Method::PATCH, body)
    });
    futures_util::future::join_all(changes).await;
    assert_eq!(port.read().await["policy"]["egress"].as_array().expect("rules").len(), 20);
}

#[tokio::test]
async fn a_sandbox_that_is_starting_has_its_policy_already() {
    let server = World::new().serve_impatiently().await;
    let gate = server.world.runtime.hold_ensures();
    let id = with_policy(&server, json!({"egress": [rule("allow", "a.example")]})).await;
    let port = Port::of(&server, &id).await;
    port.change(Method::PATCH, json!([rule("allow", "b.example")])).await;
    gate.open();
    wait_for("the start", async || server.state(&id).await == "Running").await;
    wait_for("an answer to what it sends", async || server.world.runtime.calls(Call::Outlets) == 1)
        .await;
    assert_eq!(port.read().await["policy"]["egress"].as_array().expect("rules").len(), 2);
}

#[tokio::test]
async fn a_sandbox_for_which_nobody_answers_is_not_made() {
    let server = TestServer::start().await;
    let broken = RuntimeError::failed("open outlets", "no");
    server.world.runtime.fail_next(Call::Outlets, broken);
    let answer = server.post("/v1/sandboxes", Some(with(json!({})))).await;
    answer.refusal(500, "DOCKER::SANDBOX_START_FAILED");
    server.assert_empty().await;
    server.create().await;
}

#[tokio::test]
async fn a_runtime_that_cannot_enforce_a_policy_says_so() {
    let world = World { runtime: FakeRuntime::new().without_network(), ..World::new() };
    let server = world.serve().await;
    let body = Some(with(json!({"networkPolicy": {}})));
    server.post("/v1/sandboxes", body).await.refusal(400, "SANDBOX::API_NOT_SUPPORTED");
    let id = server.create().await;
    let port = Port::of(&server, &id).await;
    port.call(Method::GET, "").await.refusal(501, "SANDBOX::API_NOT_SUPPORTED");
    port.call(Method::PATCH, "[]").await.refusal(501, "SANDBOX::API_NOT_SUPPORTED");
    let path = format!("/v1/sandboxes/{id}/networkpolicy");
    server.get(&path).await.refusal(501, "SANDBOX::API_NOT_SUPPORTED");
}

#[tokio::test]
async fn settings_of_other_servers_reach_nobody() {
    let server = TestServer::start().await;
    let id = server
        .create_from(with(json!({"env": {
            "OPENSANDBOX_EGRESS_LOG_LEVEL": "debug",
            "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true",
            "A": "b",
        }})))
        .await;
    let spec = server.world.runtime.spec(id.parse().expect("an id")).expect("a spec");
    let keys: Vec<_> = spec.env.keys().map(String::as_str).collect();
    assert_eq!(keys, ["A", "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT", "OPENSANDBOX_ID"]);
    for (key, code) in [
        ("OPENSANDBOX_EGRESS_DENY_WEBHOOK", "SANDBOX::API_NOT_SUPPORTED"),
        ("OPENSANDBOX_EGRESS_RULES", "SANDBOX::INVALID_PARAMETER"),
    ] {
        let body = Some(with(json!({"env": {key: "x"}})));
        server.post("/v1/sandboxes", body).await.refusal(400, code);
    }
}
