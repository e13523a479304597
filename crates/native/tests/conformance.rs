//! The native runtime under the laws of every runtime.
#![expect(clippy::unwrap_used, reason = "a harness that cannot be set up has failed its test")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{
    ImageName, Runtime, SandboxSpec, Token,
    testkit::{conformance::Harness, required},
};
use osb_native::{Config, Native};
use tempfile::TempDir;

const CGROUP: &str = "opensandbox-conformance";

struct Host {
    directory: TempDir,
    runtime: Mutex<Option<Arc<Native>>>,
}

impl Host {
    async fn start(&self) -> Arc<Native> {
        let config = Config {
            data_dir: self.directory.path().to_owned(),
            cgroup_parent: CGROUP.to_owned(),
            default_disk: None,
            spawner: vec![env!("CARGO_BIN_EXE_osb-spawner").to_owned()],
        };
        Native::start(config, osb_bundle::EXECD).await.unwrap()
    }
}

impl Drop for Host {
    /// Waits for the files of removed sandboxes to be deleted, so that nothing is left of a test.
    fn drop(&mut self) {
        let removed = self.directory.path().join("removed");
        for _ in 0..2000 {
            if osb_sys::fs::names(&removed).is_ok_and(|names| names.is_empty()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Ok(layout) = osb_sys::cgroup::Layout::find() {
            layout.dissolve(CGROUP);
        }
    }
}

async fn host() -> Option<Host> {
    if !required("root", rustix::process::geteuid().is_root()) {
        return None;
    }
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let host = Host { directory, runtime: Mutex::new(None) };
    let first = host.start().await;
    *host.runtime.lock().unwrap() = Some(first);
    Some(host)
}

#[async_trait]
impl Harness for Host {
    fn runtime(&self) -> Arc<dyn Runtime> {
        self.runtime.lock().unwrap().clone().expect("invariant: set when made")
    }

    async fn reopen(&self) -> Arc<dyn Runtime> {
        let first = self.runtime.lock().unwrap().take().expect("invariant: set when made");
        first.release().unwrap();
        let next = self.start().await;
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

    async fn wait(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

osb_core::conformance!(host);
