//! The native runtime under the laws of every runtime, once as it is and once with a warm pool.
#![expect(clippy::unwrap_used, reason = "a harness that cannot be set up has failed its test")]

#[path = "conformance/builds.rs"]
mod builds;
#[path = "conformance/endings.rs"]
mod endings;
#[path = "conformance/groups.rs"]
mod groups;
#[path = "conformance/images.rs"]
mod images;
#[path = "conformance/made.rs"]
mod made;
#[path = "conformance/network.rs"]
mod network;
#[path = "conformance/pool.rs"]
mod pool;
#[path = "conformance/roots.rs"]
mod roots;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{
    ImageName, Outlets, Runtime, SandboxSpec, Token,
    testkit::{
        conformance::{Harness, Reply, Transport},
        required,
    },
};
use osb_native::{Config, Native, PoolConfig};
use osb_sys::cgroup::{Group, Layout};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

struct Host {
    directory: TempDir,
    pools: Vec<PoolConfig>,
    /// A group of its own: it goes with the test, and others run at the same time.
    group: String,
    runtime: Mutex<Option<Arc<Native>>>,
}

impl Host {
    async fn new(pools: Vec<PoolConfig>) -> Option<Self> {
        if !required("root", rustix::process::geteuid().is_root()) {
            return None;
        }
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let group = format!("opensandbox-conformance-{}", SandboxId::random());
        let host = Self { directory, pools, group, runtime: Mutex::new(None) };
        let first = host.start(host.pools.clone()).await;
        *host.runtime.lock().unwrap() = Some(first);
        Some(host)
    }

    fn config(&self, pools: Vec<PoolConfig>) -> Config {
        Config {
            data_dir: self.directory.path().to_owned(),
            cgroup_parent: self.group.clone(),
            default_disk: None,
            spawner: vec![env!("CARGO_BIN_EXE_osb-spawner").to_owned()],
            pools,
            host_paths: Vec::new(),
            images: osb_native::ImageSettings::default(),
        }
    }

    async fn start(&self, pools: Vec<PoolConfig>) -> Arc<Native> {
        Native::start(self.config(pools), osb_bundle::EXECD).await.unwrap()
    }

    fn native(&self) -> Arc<Native> {
        self.runtime.lock().unwrap().clone().expect("invariant: set when made")
    }

    /// The control group of the sandbox that was started under this name.
    fn group_of(&self, name: &str) -> Group {
        let tag = osb_sys::fs::read_to_string(self.directory.path().join("group")).unwrap();
        Layout::usable().unwrap().group(&self.group, &format!("{tag}/{name}"))
    }

    /// The one that such a sandbox would have had before each data directory had a tag.
    fn untagged(&self, id: SandboxId) -> Group {
        Layout::usable().unwrap().group(&self.group, &id.to_string())
    }

    /// Lets another runtime, one without pools, clear away what waits in the pools of this one.
    fn drain(&self) {
        self.native().release().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(self.start(Vec::new())).release().unwrap();
            });
        });
    }
}

impl Drop for Host {
    /// Waits for the files of removed sandboxes to be deleted, so that nothing is left of a test.
    fn drop(&mut self) {
        if !self.pools.is_empty() {
            self.drain();
        }
        let removed = self.directory.path().join("removed");
        for _ in 0..2000 {
            if osb_sys::fs::names(&removed).is_ok_and(|names| names.is_empty()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Ok(layout) = Layout::usable() {
            layout.dissolve(&self.group);
        }
    }
}

async fn host() -> Option<Host> {
    Host::new(Vec::new()).await
}

#[async_trait]
impl Harness for Host {
    fn runtime(&self) -> Arc<dyn Runtime> {
        self.native()
    }

    async fn reopen(&self) -> Arc<dyn Runtime> {
        let first = self.runtime.lock().unwrap().take().expect("invariant: set when made");
        first.release().unwrap();
        let next = self.start(self.pools.clone()).await;
        *self.runtime.lock().unwrap() = Some(next.clone());
        next
    }

    fn spec(&self) -> SandboxSpec {
        SandboxSpec::new(
            SandboxId::random(),
            ImageName::new("host"),
            ["tail", "-f", "/dev/null"].map(str::to_owned).to_vec(),
            Token::new("conformance"),
        )
    }

    async fn write(&self, spec: &SandboxSpec, path: &str, text: &str) {
        let command = format!("printf %s '{text}' > {path}");
        let body = format!("{{\"command\":\"{command}\"}}");
        let (status, events) = ask(self, spec, "POST /command", &body).await;
        assert!(status == 200 && events.contains("execution_complete"), "{events}");
    }

    async fn read(&self, spec: &SandboxSpec, path: &str) -> Option<String> {
        let line = format!("GET /files/download?path={path}");
        let (status, content) = ask(self, spec, &line, "").await;
        (status == 200).then_some(content)
    }

    async fn talk(&self, spec: &SandboxSpec, how: Transport, to: SocketAddr, line: &str) -> Reply {
        network::talk(self, spec, how, to, line).await
    }

    fn hear(
        &self,
        outlets: &Outlets,
        how: Transport,
        answer: &str,
    ) -> Option<(SocketAddr, String)> {
        network::hear(outlets, how, answer).ok()
    }

    async fn wait(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// One call of execd: the status and the body of its answer.
async fn ask(host: &Host, spec: &SandboxSpec, line: &str, body: &str) -> (u16, String) {
    send(host, spec, line, "application/json", body).await
}

/// The same with content of another type.
async fn send(
    host: &Host,
    spec: &SandboxSpec,
    line: &str,
    kind: &str,
    body: &str,
) -> (u16, String) {
    let dialled = host.runtime().dial(spec.id, osb_api::ports::EXECD).await.unwrap();
    let osb_core::Dialled::Unix(stream) = dialled else { panic!("execd has a unix socket") };
    let mut stream = tokio::net::UnixStream::from_std(stream).unwrap();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: execd\r\n{}: {}\r\ncontent-type: {kind}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        osb_api::headers::EXECD_TOKEN,
        spec.token.reveal(),
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, content) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), content.to_owned())
}

osb_core::conformance!(host);
