//! A server to test, and a client that shows everything.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use osb_core::{
    Runtime,
    testkit::{FakeRuntime, TestClock},
};
use osb_server::{Config, KeyConfig, Overrides, RawConfig, Reload, Server, World as Driven};
use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpStream, sync::oneshot, task::JoinHandle};
use tokio_util::task::TaskTracker;

use crate::shelf::Shelf;

pub(crate) const KEY: &str = "the-key-of-the-tests";

/// What outlives a server: its data, its world and its time.
pub(crate) struct World {
    pub(crate) runtime: FakeRuntime,
    pub(crate) clock: TestClock,
    pub(crate) dir: TempDir,
    /// The images, if the runtime leaves them to the server.
    pub(crate) images: Option<Shelf>,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { runtime: FakeRuntime::new(), clock: TestClock::default(), dir, images: None }
    }

    pub(crate) async fn serve(self) -> TestServer {
        self.serve_with(RawConfig::default()).await
    }

    pub(crate) async fn serve_with(self, raw: RawConfig) -> TestServer {
        self.serve_as(raw, |_| {}).await
    }

    /// A server that answers at once, whatever has happened by then.
    pub(crate) async fn serve_impatiently(self) -> TestServer {
        self.serve_as(RawConfig::default(), |config| config.patience = Duration::ZERO).await
    }

    /// A server without a key.
    pub(crate) async fn serve_openly(self) -> TestServer {
        self.serve_as(RawConfig::default(), |config| config.key = KeyConfig::Off).await
    }

    pub(crate) async fn serve_as(
        self,
        raw: RawConfig,
        change: impl FnOnce(&mut Config),
    ) -> TestServer {
        let mut config = self.config(raw);
        change(&mut config);
        let runtime: Arc<dyn Runtime> = Arc::new(self.runtime.clone());
        let listener = Server::listen(&config).await.expect("a free port");
        // As another process would: what an earlier server broke off does not concern this one.
        let images = self.images.as_ref().map(|shelf| shelf.open(self.dir.path()));
        let world = Driven { runtime, images, clock: Arc::new(self.clock.clone()) };
        let server = Server::start(listener, config, world).await.expect("a server that starts");
        let (address, reload) = (server.address().to_string(), server.reload());
        let (stop, stopped) = oneshot::channel();
        let tasks = TaskTracker::new();
        tasks.spawn(server.run(async {
            stopped.await.ok();
        }));
        TestServer { world: self, address, reload, stop, tasks }
    }

    /// What a server of this world goes by.
    pub(crate) fn config(&self, raw: RawConfig) -> Config {
        let overrides = Overrides {
            listen: Some("127.0.0.1:0".parse().expect("an address")),
            data_dir: Some(self.dir.path().join("data")),
            api_key: Some(SecretString::from(KEY)),
            ..Overrides::default()
        };
        Config::new(raw, overrides).expect("a configuration")
    }
}

pub(crate) struct TestServer {
    pub(crate) world: World,
    pub(crate) address: String,
    pub(crate) reload: Reload,
    stop: oneshot::Sender<()>,
    tasks: TaskTracker,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        World::new().serve().await
    }

    /// Ends the server as SIGTERM would.
    pub(crate) async fn stop(self) -> World {
        self.stop.send(()).expect("a running server");
        self.tasks.close();
        self.tasks.wait().await;
        self.world
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Option<Value>) -> Answer {
        self.call(Method::POST, path, body).await
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let mut request = self.request(method, path);
        let body = body.map_or_else(Bytes::new, |body| {
            let headers = request.headers_mut().expect("headers");
            headers.insert("content-type", "application/json".parse().expect("a value"));
            Bytes::from(body.to_string())
        });
        self.send(request.body(Full::new(body)).expect("a request")).await
    }

    /// A request with the key.
    pub(crate) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        self.bare_request(method, path).header("open-sandbox-api-key", KEY)
    }

    pub(crate) fn bare_request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(path).header("host", &self.address)
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let stream = TcpStream::connect(&self.address).await.expect("a connection");
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
        self.tasks.spawn(async {
            connection.await.ok();
        });
        let response = sender.send_request(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let answer = Answer { status: parts.status.as_u16(), headers: parts.headers, body };
        assert!(answer.headers.contains_key("x-request-id"), "every answer has an id: {answer:?}");
        answer
    }

    /// Makes a sandbox and returns its id.
    pub(crate) async fn create(&self) -> String {
        self.create_from(minimal()).await
    }

    pub(crate) async fn create_from(&self, body: Value) -> String {
        let answer = self.post("/v1/sandboxes", Some(body)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Asks for a sandbox and does not wait.
    pub(crate) async fn begin_create(&self) -> Begun {
        self.begin(minimal()).await
    }

    pub(crate) async fn begin(&self, body: Value) -> Begun {
        let stream = TcpStream::connect(&self.address).await.expect("a connection");
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
        let request = self
            .request(Method::POST, "/v1/sandboxes")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .expect("a request");
        let tasks = TaskTracker::new();
        let connection = tasks.spawn(async {
            connection.await.ok();
        });
        let answer = tasks.spawn(async move { sender.send_request(request).await.is_ok() });
        Begun { connection, answer }
    }

    pub(crate) async fn state(&self, id: &str) -> String {
        let answer = self.get(&format!("/v1/sandboxes/{id}")).await;
        if answer.status == 404 {
            return "gone".to_owned();
        }
        answer.json()["status"]["state"].as_str().expect("a state").to_owned()
    }

    /// Nothing is listed and the runtime has nothing.
    pub(crate) async fn assert_empty(&self) {
        let list = self.get("/v1/sandboxes").await.json();
        assert_eq!(list["items"], json!([]));
        assert_eq!(list["pagination"]["totalItems"], 0);
        assert_eq!(self.world.runtime.list().await.expect("a list"), []);
    }
}

/// A request whose answer is not there yet.
pub(crate) struct Begun {
    connection: JoinHandle<()>,
    answer: JoinHandle<bool>,
}

impl Begun {
    /// Breaks the connection, as a client that ends does.
    pub(crate) fn hang_up(self) {
        self.answer.abort();
        self.connection.abort();
    }

    pub(crate) async fn was_answered(self) -> bool {
        self.answer.await.expect("a task that ends")
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body, which must be JSON without a single `null`.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let value = serde_json::from_slice(&self.body).expect("JSON");
        assert!(!has_null(&value), "null in {value}");
        value
    }

    /// Checks that this is a refusal with this status and code, and returns its message.
    pub(crate) fn refusal(&self, status: u16, code: &str) -> String {
        let body = self.json();
        assert_eq!((self.status, body["code"].as_str()), (status, Some(code)), "{body}");
        let message = body["message"].as_str().expect("a message").to_owned();
        assert!(!message.is_empty());
        message
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The least that makes a sandbox.
pub(crate) fn minimal() -> Value {
    json!({
        "image": {"uri": "host"},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {},
        "timeout": 600,
    })
}

/// The least, with some fields changed.
pub(crate) fn with(changes: Value) -> Value {
    let (mut body, Value::Object(changes)) = (minimal(), changes) else {
        panic!("changes are an object")
    };
    body.as_object_mut().expect("an object").extend(changes);
    body
}

/// Waits until the condition holds; the test fails if it never does.
pub(crate) async fn wait_for<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let held = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let limit = Duration::from_secs(10);
    assert!(tokio::time::timeout(limit, held).await.is_ok(), "{what} never came");
}
