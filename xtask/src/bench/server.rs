use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use super::client::Client;
use crate::checkout::{output, tool};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server of its own: a free loopback port and a directory that goes away with it.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    address: SocketAddr,
    key: String,
    directory: TempDir,
}

impl Server {
    /// Starts one with this configuration file.
    pub(crate) async fn start(osb: &Path, settings: &str) -> Result<Self> {
        Self::start_trusting(osb, settings, Path::new("")).await
    }

    /// The same, for whom nobody but an `authority` vouches for hosts, if there is one.
    pub(crate) async fn start_trusting(
        osb: &Path,
        settings: &str,
        authority: &Path,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("osb-bench-").tempdir()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config = directory.path().join("osb.toml");
        osb_sys::fs::write(&config, settings)?;
        let mut process = spawn(osb, directory.path(), address, authority)?;
        let key = serving(&mut process, directory.path(), address).await?;
        Ok(Self { process, address, key, directory })
    }

    /// Kills the server and starts another one in its place; returns how long that takes until it
    /// answers for its sandboxes.
    pub(crate) async fn replace(&mut self, osb: &Path) -> Result<Duration> {
        self.process.kill()?;
        self.process.wait()?;
        let began = Instant::now();
        self.process = spawn(osb, self.directory.path(), self.address, Path::new(""))?;
        serving(&mut self.process, self.directory.path(), self.address).await?;
        Ok(began.elapsed())
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address, &self.key)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it keeps everything.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn stop(mut self) -> Result<()> {
        // Asked and not forced, so that it gives up what waits in its pools.
        output(tool("kill").arg(self.id().to_string()))?;
        self.process.wait()?;
        self.directory.close().context("cannot remove the server's directory")
    }
}

fn spawn(osb: &Path, directory: &Path, address: SocketAddr, authority: &Path) -> Result<Child> {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log"))?;
    osb_sys::command::command(osb)
        .args(["server", "--listen", &address.to_string(), "--data-dir"])
        .arg(directory.join("data"))
        .arg("--config")
        .arg(directory.join("osb.toml"))
        .env("SSL_CERT_FILE", authority)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {}: run `make build`", osb.display()))
}

/// Waits until the server answers; returns its key.
async fn serving(process: &mut Child, directory: &Path, address: SocketAddr) -> Result<String> {
    let began = Instant::now();
    loop {
        if let Ok(key) = osb_sys::fs::read_to_string(directory.join("data/api-key"))
            // It is made first and written then.
            && !key.is_empty()
            && Client::new(address, key.trim()).is_healthy().await
        {
            return Ok(key.trim().to_owned());
        }
        if process.try_wait()?.is_some() || began.elapsed() > PATIENCE {
            process.kill().ok();
            let log = osb_sys::fs::read_to_string(directory.join("log"))?;
            bail!("the server did not start:\n{log}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
