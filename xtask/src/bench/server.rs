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
        let data = directory.path().join("data");
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config = directory.path().join("osb.toml");
        osb_sys::fs::write(&config, settings)?;
        let log = std::fs::File::create(directory.path().join("log"))?;
        let mut process = osb_sys::command::command(osb)
            .args(["server", "--listen", &address.to_string(), "--data-dir"])
            .arg(&data)
            .arg("--config")
            .arg(&config)
            .env("SSL_CERT_FILE", authority)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}: run `make build`", osb.display()))?;

        let began = Instant::now();
        loop {
            if let Ok(key) = osb_sys::fs::read_to_string(data.join("api-key"))
                // It is made first and written then.
                && !key.is_empty()
                && Client::new(address, key.trim()).is_healthy().await
            {
                let key = key.trim().to_owned();
                return Ok(Self { process, address, key, directory });
            }
            if process.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                process.kill().ok();
                let log = osb_sys::fs::read_to_string(directory.path().join("log"))?;
                bail!("the server did not start:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address, &self.key)
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
