use std::{net::SocketAddr, path::Path, time::Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::{
    Method, Request, Response,
    body::{Frame, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use serde_json::{Value, json};
use tokio::{net::UnixStream, task::JoinSet};

type Body = BoxBody<Bytes, std::convert::Infallible>;

const BOUNDARY: &str = "opensandbox-bench";
const CHUNK: usize = 256 * 1024;

/// A caller without any SDK: plain HTTP/1.1 over kept connections.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pool: Pool<HttpConnector, Body>,
    address: SocketAddr,
    key: String,
}

/// A sandbox, and the way to its execd.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    endpoint: String,
    headers: Vec<(String, String)>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, key: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let pool = Pool::builder(TokioExecutor::new()).build(connector);
        Self { pool, address, key: key.to_owned() }
    }

    pub(crate) async fn is_healthy(&self) -> bool {
        let uri = format!("http://{}/health", self.address);
        self.send(&Method::GET, &uri, &[], full(Bytes::new())).await.is_ok()
    }

    /// Makes a sandbox and asks how to reach it, as every client does.
    pub(crate) async fn create(&self) -> Result<Sandbox> {
        self.create_from("image", json!({ "uri": "host" })).await
    }

    /// The same with what the sandbox is made from.
    pub(crate) async fn create_from(&self, key: &str, origin: Value) -> Result<Sandbox> {
        self.create_with(&json!({ (key): origin })).await
    }

    /// The same with these fields in the request.
    pub(crate) async fn create_with(&self, fields: &Value) -> Result<Sandbox> {
        let mut request = json!({
            "entrypoint": ["tail", "-f", "/dev/null"],
            "resourceLimits": { "cpu": "1", "memory": "512Mi" },
            "timeout": 3600,
        });
        if let (Some(all), Some(fields)) = (request.as_object_mut(), fields.as_object()) {
            all.extend(fields.clone());
        }
        let created = self.lifecycle(&Method::POST, "/sandboxes", Some(&request)).await?;
        self.endpoint(&text(&created, "id")?, 44772).await
    }

    /// Makes a sandbox, and asks for nothing else.
    pub(crate) async fn make(&self) -> Result<()> {
        let request = json!({
            "image": { "uri": "host" },
            "entrypoint": ["tail", "-f", "/dev/null"],
            "resourceLimits": {},
            "timeout": 3600,
        });
        self.lifecycle(&Method::POST, "/sandboxes", Some(&request)).await.map(drop)
    }

    pub(crate) async fn get(&self, id: &str) -> Result<()> {
        self.lifecycle(&Method::GET, &format!("/sandboxes/{id}"), None).await.map(drop)
    }

    /// How many sandboxes a page has.
    pub(crate) async fn page(&self, page: usize, size: usize) -> Result<usize> {
        let path = format!("/sandboxes?page={page}&pageSize={size}");
        let answer = self.lifecycle(&Method::GET, &path, None).await?;
        Ok(answer.get("items").and_then(Value::as_array).map_or(0, Vec::len))
    }

    /// How many sandboxes there are.
    pub(crate) async fn count(&self) -> Result<usize> {
        let answer = self.lifecycle(&Method::GET, "/sandboxes?pageSize=1", None).await?;
        let count = answer.pointer("/pagination/totalItems").and_then(Value::as_u64);
        Ok(usize::try_from(count.context("the list does not say how long it is")?)?)
    }

    /// The way to a port of a sandbox.
    pub(crate) async fn endpoint(&self, id: &str, port: u16) -> Result<Sandbox> {
        let path = format!("/sandboxes/{id}/endpoints/{port}");
        let endpoint = self.lifecycle(&Method::GET, &path, None).await?;
        let headers = endpoint.get("headers").and_then(Value::as_object);
        let headers = headers
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect();
        Ok(Sandbox { id: id.to_owned(), endpoint: text(&endpoint, "endpoint")?, headers })
    }

    /// Makes something below the egress port of a sandbox.
    pub(crate) async fn egress(&self, id: &str, path: &str, body: &Value) -> Result<()> {
        let port = self.endpoint(id, 18080).await?;
        let mut headers = port.headers();
        headers.push(("content-type", "application/json"));
        let uri = format!("http://{}{path}", port.endpoint);
        self.send(&Method::POST, &uri, &headers, full(body.to_string())).await?.collect().await?;
        Ok(())
    }

    pub(crate) async fn change_policy(
        &self,
        method: &Method,
        id: &str,
        change: &Value,
    ) -> Result<()> {
        let path = format!("/sandboxes/{id}/networkpolicy");
        self.lifecycle(method, &path, Some(change)).await?;
        Ok(())
    }

    pub(crate) async fn remove(&self, id: &str) -> Result<()> {
        self.lifecycle(&Method::DELETE, &format!("/sandboxes/{id}"), None).await?;
        Ok(())
    }

    /// Keeps the files of a sandbox; returns the id of what is kept.
    pub(crate) async fn take_snapshot(&self, sandbox: &str) -> Result<String> {
        let path = format!("/sandboxes/{sandbox}/snapshots");
        let taken = self.lifecycle(&Method::POST, &path, None).await?;
        let state = taken.pointer("/status/state").and_then(Value::as_str);
        ensure!(state == Some("Ready"), "the snapshot is {state:?}");
        text(&taken, "id")
    }

    pub(crate) async fn delete_snapshot(&self, id: &str) -> Result<()> {
        self.lifecycle(&Method::DELETE, &format!("/snapshots/{id}"), None).await?;
        Ok(())
    }

    pub(crate) async fn remove_all(&self) -> Result<()> {
        loop {
            let page = self.lifecycle(&Method::GET, "/sandboxes?pageSize=200", None).await?;
            let items = page.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            if items.is_empty() {
                return Ok(());
            }
            let mut removing = JoinSet::new();
            for item in items {
                let (client, id) = (self.clone(), text(&item, "id")?);
                removing.spawn(async move { client.remove(&id).await });
            }
            for removed in removing.join_all().await {
                removed?;
            }
        }
    }

    /// Pauses or resumes a sandbox.
    pub(crate) async fn change(&self, id: &str, verb: &str) -> Result<()> {
        self.lifecycle(&Method::POST, &format!("/sandboxes/{id}/{verb}"), None).await?;
        Ok(())
    }

    /// The first number of this name that the server tells of itself.
    pub(crate) async fn number(&self, name: &str) -> Result<u64> {
        let uri = format!("http://{}/metrics", self.address);
        let headers = [("open-sandbox-api-key", self.key.as_str())];
        let answer = self.send(&Method::GET, &uri, &headers, full(Bytes::new())).await?;
        let body = answer.collect().await?.to_bytes();
        let said = String::from_utf8_lossy(&body);
        let mut lines = said.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
        let (_, number) =
            lines.next().with_context(|| format!("the server does not tell {name}"))?;
        Ok(number.parse()?)
    }

    /// Runs a command; returns the moment at which its stream had `wanted`.
    pub(crate) async fn run_until(
        &self,
        sandbox: &Sandbox,
        command: &str,
        wanted: &str,
    ) -> Result<Instant> {
        let answer = self.start(sandbox, &json!({ "command": command })).await?;
        until(answer, wanted).await
    }

    /// Runs a cell of Python; returns the moment at which its stream had `wanted`.
    pub(crate) async fn cell(
        &self,
        sandbox: &Sandbox,
        code: &str,
        wanted: &str,
    ) -> Result<Instant> {
        let body = json!({ "code": code, "context": { "language": "python" } });
        until(self.post(sandbox, "/code", &body).await?, wanted).await
    }

    /// Runs a command, and hands over each line of its output when it is here.
    pub(crate) async fn run_lines(
        &self,
        sandbox: &Sandbox,
        command: &str,
        mut each: impl FnMut(&str),
    ) -> Result<()> {
        let mut answer = self.start(sandbox, &json!({ "command": command })).await?;
        let mut seen = Vec::new();
        while let Some(frame) = answer.frame().await {
            seen.extend_from_slice(frame?.data_ref().map_or(&[], |data| data));
            while let Some(end) = seen.windows(2).position(|pair| pair == b"\n\n") {
                let event: Value = serde_json::from_slice(seen.get(..end).unwrap_or_default())?;
                if event.get("type").is_some_and(|kind| kind == "stdout") {
                    each(&text(&event, "text")?);
                }
                seen.drain(..end + 2);
            }
        }
        Ok(())
    }

    /// Runs a program without a shell, to its end.
    pub(crate) async fn run_argv(&self, sandbox: &Sandbox, argv: &[&str]) -> Result<()> {
        let answer = self.start(sandbox, &json!({ "argv": argv })).await?;
        ended_well(&answer.collect().await?.to_bytes())
    }

    async fn start(&self, sandbox: &Sandbox, command: &Value) -> Result<Incoming> {
        self.post(sandbox, "/command", command).await
    }

    async fn post(&self, sandbox: &Sandbox, path: &str, body: &Value) -> Result<Incoming> {
        let uri = format!("http://{}{path}", sandbox.endpoint);
        let mut headers = sandbox.headers();
        headers.push(("content-type", "application/json"));
        self.send(&Method::POST, &uri, &headers, full(body.to_string())).await
    }

    /// Writes a file of `size` bytes in one streamed upload.
    pub(crate) async fn upload(&self, sandbox: &Sandbox, path: &str, size: usize) -> Result<()> {
        let chunk = Bytes::from(vec![b'x'; CHUNK]);
        self.upload_parts(sandbox, path, std::iter::repeat_n(chunk, size / CHUNK)).await
    }

    /// Writes a program.
    pub(crate) async fn upload_file(
        &self,
        sandbox: &Sandbox,
        path: &str,
        content: Bytes,
    ) -> Result<()> {
        self.upload_parts(sandbox, path, std::iter::once(content)).await
    }

    async fn upload_parts(
        &self,
        sandbox: &Sandbox,
        path: &str,
        chunks: impl Iterator<Item = Bytes> + Send + Sync + 'static,
    ) -> Result<()> {
        let metadata = json!({ "path": path, "mode": 755 });
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"metadata\"; \
             filename=\"metadata\"\r\nContent-Type: application/json\r\n\r\n{metadata}\r\n\
             --{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        let tail = Bytes::from(format!("\r\n--{BOUNDARY}--\r\n"));
        let parts = std::iter::once(Bytes::from(head)).chain(chunks).chain([tail]);
        let body = StreamBody::new(stream::iter(parts.map(|part| Ok(Frame::data(part))))).boxed();

        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        let mut headers = sandbox.headers();
        headers.push(("content-type", &kind));
        let uri = format!("http://{}/files/upload", sandbox.endpoint);
        self.send(&Method::POST, &uri, &headers, body).await?.collect().await?;
        Ok(())
    }

    /// Reads a file and returns how many bytes came.
    pub(crate) async fn download(&self, sandbox: &Sandbox, path: &str) -> Result<usize> {
        let uri = format!("http://{}/files/download?path={path}", sandbox.endpoint);
        let empty = full(Bytes::new());
        let mut answer = self.send(&Method::GET, &uri, &sandbox.headers(), empty).await?;
        let mut size = 0;
        while let Some(frame) = answer.frame().await {
            size += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(size)
    }

    /// Gives the server an image in an archive.
    pub(crate) async fn import(&self, name: &str, archive: Vec<u8>) -> Result<()> {
        self.archive(&format!("/images/import?name={name}"), archive).await.map(drop)
    }

    /// Has an image built of an archive with its context; returns what was told of it.
    pub(crate) async fn build(&self, archive: Vec<u8>) -> Result<String> {
        self.archive("/images/build", archive).await
    }

    /// Pulls or pushes an image; returns what was told of it.
    pub(crate) async fn image_events(&self, verb: &str, request: &Value) -> Result<String> {
        let uri = format!("http://{}/v1/images/{verb}", self.address);
        let headers =
            [("open-sandbox-api-key", self.key.as_str()), ("content-type", "application/json")];
        let answer = self.send(&Method::POST, &uri, &headers, full(request.to_string())).await?;
        Ok(String::from_utf8_lossy(&answer.collect().await?.to_bytes()).into_owned())
    }

    pub(crate) async fn remove_image(&self, name: &str) -> Result<()> {
        self.lifecycle(&Method::DELETE, &format!("/images?name={name}"), None).await.map(drop)
    }

    /// Removes what no image needs.
    pub(crate) async fn collect_images(&self) -> Result<()> {
        self.lifecycle(&Method::POST, "/images/gc", None).await.map(drop)
    }

    async fn archive(&self, path: &str, archive: Vec<u8>) -> Result<String> {
        let uri = format!("http://{}/v1{path}", self.address);
        let headers =
            [("open-sandbox-api-key", self.key.as_str()), ("content-type", "application/x-tar")];
        let answer = self.send(&Method::POST, &uri, &headers, full(archive)).await?;
        Ok(String::from_utf8_lossy(&answer.collect().await?.to_bytes()).into_owned())
    }

    async fn lifecycle(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let uri = format!("http://{}/v1{path}", self.address);
        let headers =
            [("open-sandbox-api-key", self.key.as_str()), ("content-type", "application/json")];
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let answer = self.send(method, &uri, &headers, full(body)).await?;
        let body = answer.collect().await?.to_bytes();
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).context("the server answered something else than JSON")
    }

    async fn send(
        &self,
        method: &Method,
        uri: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Result<Incoming> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer: Response<Incoming> = self
            .pool
            .request(request.body(body)?)
            .await
            .with_context(|| format!("{method} {uri}"))?;
        let status = answer.status();
        if !status.is_success() {
            let said = answer.into_body().collect().await?.to_bytes();
            bail!("{method} {uri} got {status}: {}", String::from_utf8_lossy(&said));
        }
        Ok(answer.into_body())
    }
}

/// One connection to the socket of a daemon, with neither server nor gateway in between.
#[derive(Debug)]
pub(crate) struct Direct {
    connection: SendRequest<Body>,
    headers: Vec<(String, String)>,
    /// What moves the bytes; it ends with this.
    _task: JoinSet<hyper::Result<()>>,
}

impl Direct {
    pub(crate) async fn connect(socket: &Path, sandbox: &Sandbox) -> Result<Self> {
        let stream = UnixStream::connect(socket).await.context("cannot reach the daemon")?;
        let (connection, running) = http1::handshake(TokioIo::new(stream)).await?;
        let mut task = JoinSet::new();
        task.spawn(running);
        Ok(Self { connection, headers: sandbox.headers.clone(), _task: task })
    }

    /// Runs a program without a shell, to its end.
    pub(crate) async fn run(&mut self, argv: &[&str]) -> Result<()> {
        let mut request = Request::builder().method(Method::POST).uri("/command");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request =
            request.header("host", "execd").body(full(json!({ "argv": argv }).to_string()))?;
        self.connection.ready().await?;
        let answer = self.connection.send_request(request).await?;
        ended_well(&answer.into_body().collect().await?.to_bytes())
    }
}

fn ended_well(events: &[u8]) -> Result<()> {
    let events = String::from_utf8_lossy(events);
    ensure!(events.contains("execution_complete"), "the command failed: {events}");
    Ok(())
}

impl Sandbox {
    /// A request to one of its ports, as it goes over the wire.
    pub(crate) fn request(&self, port: u16, path: &str) -> String {
        let headers: Vec<String> =
            self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let (id, headers) = (&self.id, headers.concat());
        let path = format!("/v1/sandboxes/{id}/proxy/{port}{path}");
        format!("GET {path} HTTP/1.1\r\nhost: bench\r\n{headers}\r\n")
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }
}

/// Reads a stream to its end; returns the moment at which it had `wanted`.
async fn until(mut answer: Incoming, wanted: &str) -> Result<Instant> {
    let mut seen = String::new();
    while let Some(frame) = answer.frame().await {
        if let Some(data) = frame?.data_ref() {
            // Of much output only the end matters.
            if seen.len() > CHUNK {
                seen.clear();
            }
            seen.push_str(&String::from_utf8_lossy(data));
        }
        if seen.contains(wanted) {
            let moment = Instant::now();
            // The connection can only be used again once the stream has ended.
            answer.collect().await?;
            return Ok(moment);
        }
    }
    bail!("it ended without {wanted:?}: {seen}");
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed()
}

fn text(value: &Value, field: &str) -> Result<String> {
    let text = value.get(field).and_then(Value::as_str);
    Ok(text.with_context(|| format!("an answer lacks `{field}`"))?.to_owned())
}
