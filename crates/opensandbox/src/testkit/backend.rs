use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request};
use osb_api::lifecycle::CreateSandboxRequest;

use super::{Reply, ScriptedServer, Then, delayed, reply, stream_reply};
use crate::Connection;

/// A server with just enough behaviour for clients: sandboxes come and go, and commands answer
/// what the test said they would.
#[derive(Debug)]
pub struct FakeBackend {
    server: ScriptedServer,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    created: u32,
    sandboxes: BTreeSet<String>,
    start_failure: Option<String>,
    /// What is still said of sandboxes before they come up.
    pending: VecDeque<&'static str>,
    command: Option<(Vec<Bytes>, Then)>,
    delay: Duration,
    file: Bytes,
    egress_log: Option<&'static str>,
    vault_problem: Option<&'static str>,
}

impl FakeBackend {
    pub async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let script = Arc::clone(&state);
        let server = ScriptedServer::start(move |request| lock(&script).answer(request)).await;
        Self { server, state }
    }

    pub fn connection(&self) -> Connection {
        self.server.connection()
    }

    /// What every command streams from now on.
    pub fn next_command(&self, pieces: &[&'static str], then: Then) {
        let pieces = pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        lock(&self.state).command = Some((pieces, then));
    }

    /// How long every command takes to say anything from now on.
    pub fn delay_commands(&self, delay: Duration) {
        lock(&self.state).delay = delay;
    }

    /// From now on no sandbox comes up, for this reason.
    pub fn fail_starts(&self, reason: &str) {
        lock(&self.state).start_failure = Some(reason.to_owned());
    }

    /// The next sandbox is pending, and says these things whenever it is asked for; then it comes up.
    pub fn hold_starts(&self, messages: &[&'static str]) {
        lock(&self.state).pending = messages.iter().copied().collect();
    }

    /// What every file contains.
    pub fn set_file(&self, content: &'static str) {
        lock(&self.state).file = Bytes::from_static(content.as_bytes());
    }

    /// What every sandbox tried in the network, as JSON. Until it is said, there is no such call.
    pub fn set_egress_log(&self, log: &'static str) {
        lock(&self.state).egress_log = Some(log);
    }

    /// From now on no vault is made, for this reason.
    pub fn fail_vaults(&self, problem: &'static str) {
        lock(&self.state).vault_problem = Some(problem);
    }

    /// The sandboxes that exist now.
    pub fn sandboxes(&self) -> BTreeSet<String> {
        lock(&self.state).sandboxes.clone()
    }

    /// The bodies of all requests with this method whose path ends like this.
    pub fn bodies(&self, method: &Method, path_end: &str) -> Vec<Bytes> {
        let seen = self.server.seen().into_iter();
        seen.filter(|request| {
            request.method() == method && request.uri().path().ends_with(path_end)
        })
        .map(Request::into_body)
        .collect()
    }

    /// The requests so far, as `METHOD /path?query`.
    pub fn calls(&self) -> Vec<String> {
        self.server.calls()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn answer(&mut self, request: &Request<Bytes>) -> Reply {
        let path = request.uri().path().trim_start_matches("/v1").to_owned();
        let parts: Vec<_> = path.split('/').skip(1).collect();
        let host = request.headers().get("host").and_then(|host| host.to_str().ok());
        match (request.method().as_str(), parts.as_slice()) {
            ("POST", ["sandboxes"]) => self.create(request.body()),
            ("GET", ["sandboxes"]) => {
                let items: Vec<_> = self.sandboxes.iter().map(|id| self.sandbox(id)).collect();
                reply(
                    200,
                    format!(
                        r#"{{"items":[{}],"pagination":{{"page":1,"pageSize":20,"totalItems":{},"totalPages":1,"hasNextPage":false}}}}"#,
                        items.join(","),
                        items.len()
                    ),
                )
            }
            (_, ["sandboxes", id, ..]) if !self.sandboxes.contains(*id) => {
                reply(404, r#"{"code":"DOCKER::SANDBOX_NOT_FOUND","message":"no such sandbox"}"#)
            }
            ("GET", ["sandboxes", _, "egress", "log"]) if self.egress_log.is_some() => {
                reply(200, self.egress_log.unwrap_or_default())
            }
            ("GET", ["sandboxes", id]) => {
                let body = self.sandbox(id);
                self.pending.pop_front();
                reply(200, body)
            }
            ("DELETE", ["sandboxes", id]) => {
                self.sandboxes.remove(*id);
                reply(204, "")
            }
            ("POST", ["sandboxes", _, "renew-expiration"]) => reply(200, request.body().clone()),
            ("GET", ["sandboxes", id, "endpoints", port]) => reply(
                200,
                format!(
                    r#"{{"endpoint":"{}/v1/sandboxes/{id}/proxy/{port}","headers":{{"X-EXECD-ACCESS-TOKEN":"token"}}}}"#,
                    host.unwrap_or_default()
                ),
            ),
            (_, ["sandboxes", _, "proxy", ..]) if self.start_failure.is_some() => {
                reply(502, r#"{"code":"BACKEND_CONNECTION_FAILED","message":"not up"}"#)
            }
            ("POST", ["sandboxes", _, "proxy", _, "command"]) => {
                let (pieces, then) = self.command.clone().unwrap_or((Vec::new(), Then::End));
                delayed(stream_reply(pieces, then), self.delay)
            }
            ("POST", ["sandboxes", _, "proxy", _, "credential-vault"]) => {
                match self.vault_problem {
                    None => reply(201, r#"{"revision":1,"credentials":[],"bindings":[]}"#),
                    Some(problem) => {
                        reply(400, format!(r#"{{"code":"VAULT::INVALID","message":"{problem}"}}"#))
                    }
                }
            }
            ("GET", ["sandboxes", _, "proxy", _, "files", "download"]) => {
                reply(200, self.file.clone())
            }
            (_, ["sandboxes", _, "proxy", ..]) => reply(200, ""),
            _ => reply(404, r#"{"code":"GENERAL::NOT_FOUND","message":"no such route"}"#),
        }
    }

    fn create(&mut self, body: &Bytes) -> Reply {
        if let Err(error) = serde_json::from_slice::<CreateSandboxRequest>(body) {
            let message = error.to_string().replace('"', "'");
            return reply(
                400,
                format!(r#"{{"code":"SANDBOX::INVALID_PARAMETER","message":"{message}"}}"#),
            );
        }
        self.created += 1;
        let id = format!("sandbox-{}", self.created);
        let body = self.sandbox(&id);
        self.sandboxes.insert(id);
        reply(202, body)
    }

    fn sandbox(&self, id: &str) -> String {
        let (state, message) = match (self.pending.front(), &self.start_failure) {
            (Some(message), _) => ("Pending", *message),
            (None, None) => ("Running", "it runs"),
            (None, Some(reason)) => ("Failed", reason.as_str()),
        };
        format!(
            r#"{{"id":"{id}","image":{{"uri":"host"}},"status":{{"state":"{state}","message":"{message}"}},"metadata":{{"team":"a"}},"entrypoint":["tail","-f","/dev/null"],"expiresAt":"2030-01-01T00:10:00Z","createdAt":"2030-01-01T00:00:00Z"}}"#
        )
    }
}
