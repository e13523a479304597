//! A running execd and a client for it.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use osb_api::{
    ErrorBody,
    execd::{Event, EventKind},
};
use osb_core::testkit::required;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_util::task::TaskTracker;

pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

const PATIENCE: Duration = Duration::from_secs(20);

const EXECD: &str = env!("CARGO_BIN_EXE_execd");

/// An execd that ends with this value.
pub(crate) struct Daemon {
    child: Child,
    port: u16,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::with(&[], &[])
    }

    pub(crate) fn with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::launch(osb_sys::command::command(EXECD).args(arguments), variables)
    }

    /// Through `wrapper`, the words of a program that runs another.
    pub(crate) fn under(wrapper: &[&str]) -> Self {
        Self::launch(osb_sys::command::command("/usr/bin/env").args(wrapper).arg(EXECD), &[])
    }

    fn launch(command: &mut Command, variables: &[(&str, &str)]) -> Self {
        let mut child = command
            .args(["--port", "0"])
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", "/root")
            // Whatever kernels this machine may have.
            .env("EXECD_CODE_KIND", "builtin")
            .envs(variables.iter().copied())
            .current_dir("/")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self { child, port }
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection::over(TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response<Incoming> {
        self.connect().await.send(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response<Incoming> {
        self.send(request(Method::GET, path, "")).await
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, command: Value) -> Vec<Event> {
        let response = self.send(request(Method::POST, "/command", command.to_string())).await;
        events(response).await
    }

    /// Runs a command that must fail before it begins.
    pub(crate) async fn refused(&self, command: Value) -> (StatusCode, ErrorBody) {
        error(self.send(request(Method::POST, "/command", command.to_string())).await).await
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for the daemon to end.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for("execd ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    /// What the daemon has open.
    pub(crate) fn descriptors(&self) -> Vec<String> {
        let directory = format!("/proc/{}/fd", self.child.id());
        let numbers = osb_sys::fs::names(&directory).unwrap();
        let links =
            numbers.iter().filter_map(|number| Path::new(&directory).join(number).read_link().ok());
        links.map(|link| link.to_string_lossy().into_owned()).collect()
    }

    /// The memory that the daemon has for itself, in KiB: its code comes and goes.
    pub(crate) fn resident(&self) -> u64 {
        resident(self.child.id())
    }
}

pub(crate) fn resident(pid: u32) -> u64 {
    let status = osb_sys::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Orphans come to it, so all that it has started is below it.
        let below = descendants(self.pid());
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        for pid in below {
            // Most have ended by themselves.
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

fn descendants(of: Pid) -> Vec<Pid> {
    let mut found = vec![of];
    let mut at = 0;
    while let Some(parent) = found.get(at) {
        let tasks = format!("/proc/{}/task", parent.as_raw_pid());
        for task in osb_sys::fs::names(&tasks).unwrap_or_default() {
            let children = osb_sys::fs::read_to_string(format!("{tasks}/{task}/children"));
            let children = children.unwrap_or_default();
            found.extend(children.split(' ').filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
        }
        at += 1;
    }
    found.split_off(1)
}

/// One connection, closed when this value and the answers' bodies are dropped.
pub(crate) struct Connection(SendRequest<Body>);

impl Connection {
    pub(crate) async fn to_socket(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).await.unwrap()).await
    }

    pub(crate) async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        TaskTracker::new().spawn(connection.with_upgrades());
        Self(sender)
    }

    pub(crate) async fn send(&mut self, request: Request<Body>) -> Response<Incoming> {
        self.0.send_request(request).await.unwrap()
    }
}

pub(crate) fn request(method: Method, path: &str, body: impl Into<Bytes>) -> Request<Body> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed();
    Request::builder().method(method).uri(path).header(header::HOST, "sandbox").body(body).unwrap()
}

pub(crate) async fn bytes(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

/// The events of a stream that ended well.
pub(crate) async fn events(response: Response<Incoming>) -> Vec<Event> {
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    parse(&bytes(response).await)
}

/// The events in some bytes, which must be whole frames.
pub(crate) fn parse(bytes: &[u8]) -> Vec<Event> {
    let text = std::str::from_utf8(bytes).unwrap();
    let frames = text.strip_suffix("\n\n").unwrap().split("\n\n");
    frames.map(|frame| serde_json::from_str(frame).unwrap()).collect()
}

/// Takes the events that are complete out of the bytes that have arrived.
pub(crate) fn take_events(arrived: &mut Vec<u8>) -> Vec<Event> {
    let complete = arrived.windows(2).rposition(|pair| pair == b"\n\n").map(|at| at + 2);
    complete.map_or_else(Vec::new, |end| parse(&arrived.drain(..end).collect::<Vec<_>>()))
}

/// An answer that must be an error with a body as clients want it.
pub(crate) async fn error(response: Response<Incoming>) -> (StatusCode, ErrorBody) {
    let status = response.status();
    assert!(!status.is_success(), "{status}");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json; charset=utf-8");
    let body: ErrorBody = serde_json::from_slice(&bytes(response).await).unwrap();
    assert!(!body.message.is_empty());
    (status, body)
}

pub(crate) fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

pub(crate) fn texts(events: &[Event], kind: EventKind) -> Vec<&str> {
    let of_kind = events.iter().filter(|event| event.kind == kind);
    of_kind.map(|event| event.text.as_deref().unwrap()).collect()
}

pub(crate) fn stdout(events: &[Event]) -> Vec<&str> {
    texts(events, EventKind::Stdout)
}

/// The exit code of a command as clients find it: from the last event alone.
pub(crate) fn outcome(events: &[Event]) -> &str {
    let (last, before) = events.split_last().unwrap();
    let terminal = [EventKind::Error, EventKind::ExecutionComplete];
    assert!(before.iter().all(|event| !terminal.contains(&event.kind)), "{events:?}");
    if last.kind == EventKind::ExecutionComplete {
        return "0";
    }
    assert_eq!(last.kind, EventKind::Error, "{last:?} ends nothing");
    let failure = last.error.as_ref().unwrap();
    assert_eq!(failure.ename, "CommandExecError");
    &failure.evalue
}

/// Waits until something is true, and fails the test if it never is.
pub(crate) async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn is_alive(pid: &str) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// The letter by which the kernel tells what a process does.
pub(crate) fn state(pid: &str) -> Option<char> {
    let stat = osb_sys::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

pub(crate) fn is_root() -> bool {
    required("root", rustix::process::geteuid().is_root())
}
