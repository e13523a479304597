use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use http::{HeaderMap, Method};
use jiff::Timestamp;
use osb_api::{
    headers,
    lifecycle::{
        CreateSandboxRequest, CreateSandboxResponse, Endpoint, ListSandboxesQuery,
        ListSandboxesResponse, MetadataPatch, RenewExpirationRequest, RenewExpirationResponse,
        Sandbox, SandboxUsage, Time,
    },
    ports,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    ClientError, Connection, Execd, Route,
    transport::{self, Call, Transport},
};

/// Everything outside RFC 3986's unreserved characters.
pub(crate) const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Client of the lifecycle API: makes, finds, keeps and ends sandboxes.
///
/// Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    connection: Connection,
    pub(crate) transport: Transport,
}

impl Lifecycle {
    pub fn new(connection: Connection) -> Self {
        Self { connection, transport: Transport::new() }
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Makes a sandbox. It may still be starting when this returns.
    pub async fn create(
        &self,
        request: &CreateSandboxRequest,
    ) -> Result<CreateSandboxResponse, ClientError> {
        let mut call = self.call("create a sandbox", Method::POST, "/sandboxes").json(request)?;
        // Some servers fetch the image before they answer.
        call.within = self.connection.ready_within;
        self.transport.fetch(call).await
    }

    pub async fn get(&self, id: &str) -> Result<Sandbox, ClientError> {
        self.transport.fetch(self.call("look up a sandbox", Method::GET, &path(id, ""))).await
    }

    /// What a sandbox uses that runs or is paused. An extension: not every server tells it.
    pub async fn usage(&self, id: &str) -> Result<SandboxUsage, ClientError> {
        let call = self.call("look up what a sandbox uses", Method::GET, &path(id, "/usage"));
        self.transport.fetch(call).await
    }

    /// One page of sandboxes, newest first.
    pub async fn list(
        &self,
        query: &ListSandboxesQuery,
    ) -> Result<ListSandboxesResponse, ClientError> {
        let path = format!("/sandboxes?{}", list_query(query));
        self.transport.fetch(self.call("list sandboxes", Method::GET, &path)).await
    }

    /// Ends the sandbox and removes everything made for it.
    pub async fn delete(&self, id: &str) -> Result<(), ClientError> {
        self.transport.settle(self.call("remove a sandbox", Method::DELETE, &path(id, ""))).await
    }

    /// Moves the sandbox's end to `expires_at`; returns what the server made of it.
    pub async fn renew(&self, id: &str, expires_at: Timestamp) -> Result<Timestamp, ClientError> {
        let request = RenewExpirationRequest { expires_at: Time(expires_at) };
        let call = self.call("renew a sandbox", Method::POST, &path(id, "/renew-expiration"));
        let answer: RenewExpirationResponse = self.transport.fetch(call.json(&request)?).await?;
        Ok(answer.expires_at.0)
    }

    /// Sets labels, and removes those whose value is absent.
    pub async fn patch_metadata(
        &self,
        id: &str,
        patch: &MetadataPatch,
    ) -> Result<Sandbox, ClientError> {
        let call = self.call("change metadata", Method::PATCH, &path(id, "/metadata"));
        self.transport.fetch(call.json(patch)?).await
    }

    /// Stops the sandbox with its memory kept. Returns once the server has accepted it.
    pub async fn pause(&self, id: &str) -> Result<(), ClientError> {
        self.transport.settle(self.call("pause a sandbox", Method::POST, &path(id, "/pause"))).await
    }

    /// Lets a paused sandbox go on. Returns once the server has accepted it.
    pub async fn resume(&self, id: &str) -> Result<(), ClientError> {
        let call = self.call("resume a sandbox", Method::POST, &path(id, "/resume"));
        self.transport.settle(call).await
    }

    /// Where a port of the sandbox can be reached, and with which headers.
    pub async fn endpoint(&self, id: &str, port: u16) -> Result<Endpoint, ClientError> {
        let proxied = self.connection.route == Route::Server;
        let path = path(id, &format!("/endpoints/{port}?use_server_proxy={proxied}"));
        self.transport.fetch(self.call("look up an endpoint", Method::GET, &path)).await
    }

    /// An address of a port that opens it by itself until `expires`, in seconds since 1970.
    pub async fn signed_endpoint(
        &self,
        id: &str,
        port: u16,
        expires: i64,
    ) -> Result<Endpoint, ClientError> {
        let path = path(id, &format!("/endpoints/{port}?expires={expires}"));
        self.transport.fetch(self.call("have an endpoint signed", Method::GET, &path)).await
    }

    /// A client of the daemon in the sandbox.
    pub async fn execd(&self, id: &str) -> Result<Execd, ClientError> {
        let endpoint = self.endpoint(id, ports::EXECD).await?;
        Execd::new(&self.connection, self.transport.clone(), &endpoint)
    }

    pub(crate) fn call(&self, doing: &'static str, method: Method, path: &str) -> Call {
        let mut headers = HeaderMap::new();
        if let Some(key) = self.connection.key_header() {
            headers.insert(headers::API_KEY, key.clone());
        }
        Call {
            doing,
            method,
            url: format!("{}{path}", self.connection.base()),
            headers,
            body: transport::empty(),
            within: self.connection.answer_within,
        }
    }

    pub(crate) fn answer_within(&self) -> Duration {
        self.connection.answer_within
    }

    pub(crate) fn ready_within(&self) -> Duration {
        self.connection.ready_within
    }
}

pub(crate) fn path(id: &str, rest: &str) -> String {
    format!("/sandboxes/{}{rest}", utf8_percent_encode(id, ENCODED))
}

fn list_query(query: &ListSandboxesQuery) -> String {
    let mut text = format!("page={}&pageSize={}", query.page, query.page_size);
    for state in &query.state {
        write!(text, "&state={}", utf8_percent_encode(state, ENCODED))
            .expect("writing to a string succeeds");
    }
    if !query.metadata.is_empty() {
        // The filter is a form of its own inside one parameter, hence encoded twice.
        let filter = form(&query.metadata);
        write!(text, "&metadata={}", utf8_percent_encode(&filter, ENCODED))
            .expect("writing to a string succeeds");
    }
    text
}

fn form(pairs: &BTreeMap<String, String>) -> String {
    let encode = |text| utf8_percent_encode(text, ENCODED);
    let pairs: Vec<_> =
        pairs.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{ScriptedServer, reply};

    const ENDPOINT: &str = r#"{"endpoint":"example:1/p"}"#;

    #[tokio::test]
    async fn calls_go_below_v1_with_the_key() {
        let server = ScriptedServer::start(|request| match request.method() {
            &Method::DELETE => reply(204, ""),
            _ => reply(200, ENDPOINT),
        })
        .await;
        let lifecycle = Lifecycle::new(server.connection().api_key("k").unwrap());
        lifecycle.delete("a/b").await.unwrap();
        lifecycle.pause("x").await.unwrap();
        assert_eq!(lifecycle.endpoint("x", 80).await.unwrap().endpoint, "example:1/p");
        assert_eq!(
            server.calls(),
            [
                "DELETE /v1/sandboxes/a%2Fb",
                "POST /v1/sandboxes/x/pause",
                "GET /v1/sandboxes/x/endpoints/80?use_server_proxy=false"
            ]
        );
        assert!(server.seen().iter().all(|request| request.headers()[headers::API_KEY] == "k"));
    }

    #[tokio::test]
    async fn a_refusal_keeps_code_message_and_request_id() {
        let server = ScriptedServer::start(|_| {
            let mut reply = reply(404, r#"{"code":"DOCKER::SANDBOX_NOT_FOUND","message":"none"}"#);
            reply.headers_mut().insert(headers::REQUEST_ID, "r1".parse().unwrap());
            reply
        })
        .await;
        let error = Lifecycle::new(server.connection()).get("x").await.unwrap_err();
        assert!(error.is_not_found());
        assert_eq!(error.to_string(), "none (DOCKER::SANDBOX_NOT_FOUND)");
        let ClientError::Api { request_id, .. } = error else { panic!("{error:?}") };
        assert_eq!(request_id.as_deref(), Some("r1"));
    }

    #[tokio::test]
    async fn an_answer_from_something_else_is_quoted() {
        let server = ScriptedServer::start(|_| reply(502, "<h1>Bad Gateway</h1>\n")).await;
        let error = Lifecycle::new(server.connection()).get("x").await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol { .. }), "{error:?}");
        assert!(error.to_string().contains("<h1>Bad Gateway</h1>"), "{error}");
    }

    #[tokio::test]
    async fn nobody_there_is_a_connect_error() {
        let server = ScriptedServer::start(|_| reply(200, "")).await;
        let connection = server.connection();
        drop(server);
        // The listening socket goes with the task, which ends at the runtime's next turn.
        tokio::task::yield_now().await;
        let error = Lifecycle::new(connection).get("x").await.unwrap_err();
        assert!(matches!(error, ClientError::Connect { .. }), "{error:?}");
    }

    #[test]
    fn a_filter_is_encoded_twice() {
        let query = ListSandboxesQuery {
            state: vec!["Running".to_owned(), "Paused".to_owned()],
            metadata: [("team".to_owned(), "a b".to_owned())].into(),
            ..ListSandboxesQuery::default()
        };
        assert_eq!(
            list_query(&query),
            "page=1&pageSize=20&state=Running&state=Paused&metadata=team%3Da%2520b"
        );
    }
}
