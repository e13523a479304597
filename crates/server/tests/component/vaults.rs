//! The credentials of sandboxes, as clients write and read them.

use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use osb_server::RawConfig;
use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, wait_for, with};

/// The egress port of one sandbox.
struct Port<'a> {
    server: &'a TestServer,
    id: String,
    token: String,
}

impl<'a> Port<'a> {
    /// The port of a new sandbox that may have a vault.
    async fn new(server: &'a TestServer) -> Self {
        let rules = json!([{"action": "allow", "target": "api.example.com"}]);
        let body = with(json!({
            "networkPolicy": {"egress": rules}, "credentialProxy": {"enabled": true},
        }));
        let id = server.create_from(body).await;
        Self::of(server, &id).await
    }

    async fn of(server: &'a TestServer, id: &str) -> Self {
        let endpoint = server.get(&format!("/v1/sandboxes/{id}/endpoints/18080")).await.json();
        let token = endpoint["headers"]["OPENSANDBOX-EGRESS-AUTH"].as_str().expect("a token");
        Self { server, id: id.to_owned(), token: token.to_owned() }
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.call_as(&self.token, method, path, body).await
    }

    async fn call_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let path = format!("/v1/sandboxes/{}/proxy/18080{path}", self.id);
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let request = self.server.bare_request(method, &path);
        let request = request.header("opensandbox-egress-auth", token);
        let request = request.header("content-type", "application/json");
        self.server.send(request.body(Full::new(body)).expect("a request")).await
    }

    async fn create(&self) -> Value {
        let made = self.call(Method::POST, "/credential-vault", Some(filled())).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.json()
    }

    async fn status(&self) -> u16 {
        self.call(Method::GET, "/credential-vault", None).await.status
    }
}

fn filled() -> Value {
    json!({
        "credentials": [{"name": "key", "source": {"value": "hunter2"}}],
        "bindings": [{
            "name": "api",
            "match": {"hosts": ["api.example.com"]},
            "auth": {"type": "bearer", "credential": "key"},
        }],
    })
}

#[tokio::test]
async fn a_vault_is_made_read_changed_and_deleted_without_showing_a_secret() {
    let server = TestServer::start().await;
    let port = Port::new(&server).await;
    let made = port.create().await;
    assert_eq!(made["revision"], 1);
    for (path, expected) in [
        ("", &made),
        ("/credentials", &json!({"revision": 1, "credentials": made["credentials"]})),
        ("/bindings", &json!({"revision": 1, "bindings": made["bindings"]})),
        ("/credentials/key", &made["credentials"][0]),
        ("/bindings/%61pi", &made["bindings"][0]),
    ] {
        let read = port.call(Method::GET, &format!("/credential-vault{path}"), None).await;
        assert_eq!((read.status, &read.json()), (200, expected), "{path}");
        assert!(!String::from_utf8_lossy(&read.body).contains("hunter2"));
    }
    let change = json!({"expectedRevision": 1});
    let path = "/credential-vault";
    let changed = port.call(Method::PATCH, path, Some(change.clone())).await;
    assert_eq!((changed.status, &changed.json()["revision"]), (200, &json!(2)));
    let stale = port.call(Method::PATCH, path, Some(change)).await;
    stale.refusal(409, "VAULT::REVISION_MISMATCH");
    let deleted = port.call(Method::DELETE, path, None).await;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    port.call(Method::GET, path, None).await.refusal(404, "VAULT::NOT_FOUND");
    port.call(Method::DELETE, path, None).await.refusal(404, "VAULT::NOT_FOUND");
    assert_eq!(port.create().await["revision"], 3);
}

#[tokio::test]
async fn of_all_that_is_wrong_the_same_is_said_first() {
    let server = TestServer::start().await;
    let port = Port::new(&server).await;
    let plain = server.create_from(with(json!({"networkPolicy": {}}))).await;
    let plain = Port::of(&server, &plain).await;
    let (path, nonsense) = ("/credential-vault", json!({"credentials": "hunter2"}));

    let closed = "/credential-vault/_active";
    plain.call_as("x", Method::GET, closed, None).await.refusal(403, "VAULT::FORBIDDEN");
    let wrong = plain.call_as("x", Method::POST, closed, None).await;
    wrong.refusal(405, "GENERAL::METHOD_NOT_ALLOWED");
    assert_eq!(wrong.header("allow"), Some("GET"));
    let body = || Some(nonsense.clone());
    plain.call_as("x", Method::POST, path, body()).await.refusal(401, "EGRESS::UNAUTHORIZED");
    plain.call(Method::POST, path, body()).await.refusal(412, "VAULT::NOT_READY");
    plain.call(Method::GET, path, None).await.refusal(404, "VAULT::NOT_FOUND");
    let message = port.call(Method::POST, path, body()).await.refusal(400, "VAULT::INVALID");
    assert!(!message.contains("hunter2"), "{message}");
    port.call(Method::PATCH, path, Some(json!({}))).await.refusal(404, "VAULT::NOT_FOUND");
    port.create().await;
    let invalid = json!({"credentials": [{"name": "", "source": {"value": ""}}]});
    port.call(Method::POST, path, Some(invalid)).await.refusal(409, "VAULT::ALREADY_EXISTS");
    port.call(Method::GET, "/credential-vault/x", None).await.refusal(404, "GENERAL::NOT_FOUND");
    let wrong = port.call(Method::PUT, path, None).await;
    wrong.refusal(405, "GENERAL::METHOD_NOT_ALLOWED");
    assert_eq!(wrong.header("allow"), Some("GET, POST, PATCH, DELETE"));
}

#[tokio::test]
async fn bound_hosts_and_the_policy_agree_at_all_times() {
    let server = TestServer::start().await;
    let port = Port::new(&server).await;
    let elsewhere = json!({"bindings": [{
        "name": "b", "match": {"hosts": ["example.net"]}, "auth": {"type": "passthrough"},
    }]});
    let refused = port.call(Method::POST, "/credential-vault", Some(elsewhere)).await;
    assert!(refused.refusal(400, "VAULT::INVALID").contains("example.net"));
    port.create().await;
    let targets = json!(["api.example.com"]);
    let refused = port.call(Method::DELETE, "/policy", Some(targets.clone())).await;
    assert!(refused.refusal(400, "SANDBOX::INVALID_PARAMETER").contains("api.example.com"));
    let read = port.call(Method::GET, "/policy", None).await.json();
    assert_eq!(read["policy"]["egress"].as_array().map(Vec::len), Some(1));
    assert_eq!(port.call(Method::DELETE, "/credential-vault", None).await.status, 204);
    assert_eq!(port.call(Method::DELETE, "/policy", Some(targets)).await.status, 200);
}

#[tokio::test]
async fn a_credential_proxy_needs_a_policy() {
    let server = TestServer::start().await;
    let body = with(json!({"credentialProxy": {"enabled": true}}));
    let refused = server.post("/v1/sandboxes", Some(body)).await;
    refused.refusal(422, "SANDBOX::INVALID_PARAMETER");
    server.assert_empty().await;
    server.create_from(with(json!({"credentialProxy": {"enabled": false}}))).await;
}

#[tokio::test]
async fn pausing_keeps_a_vault_and_a_restart_only_where_the_operator_wants_it() {
    let server = TestServer::start().await;
    let port = Port::new(&server).await;
    let id = port.id.clone();
    port.create().await;
    for (verb, state) in [("pause", "Paused"), ("resume", "Running")] {
        server.post(&format!("/v1/sandboxes/{id}/{verb}"), None).await;
        wait_for(state, || async { server.state(&id).await == state }).await;
        assert_eq!(port.status().await, 200);
    }
    let server = server.stop().await.serve().await;
    let port = Port::of(&server, &id).await;
    assert_eq!(port.status().await, 404);
    assert_eq!(port.create().await["revision"], 1);

    let persist = |config: &mut osb_server::Config| config.vault.persist = true;
    let server = server.stop().await.serve_as(RawConfig::default(), persist).await;
    let port = Port::of(&server, &id).await;
    assert_eq!(port.status().await, 404);
    let made = port.create().await;
    let server = server.stop().await.serve_as(RawConfig::default(), persist).await;
    let port = Port::of(&server, &id).await;
    assert_eq!(port.call(Method::GET, "/credential-vault", None).await.json(), made);

    let kept = || server.world.dir.path().join("data/vaults").join(&id);
    let sealed = osb_sys::fs::read(kept()).expect("a kept vault");
    assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
    assert_eq!(server.delete(&format!("/v1/sandboxes/{id}")).await.status, 204);
    wait_for("the end of the vault", || async { !kept().exists() }).await;
}
