//! Kernels of Jupyter: how soon they answer, beside the same kernel started by hand.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde_json::json;

use super::{
    client::{Client, Sandbox},
    life,
    sample::Sample,
    server::Server,
};

const IMAGE: &str = "opensandbox/code-interpreter:latest";
const POOL: &str =
    "[[pool]]\nimage = 'opensandbox/code-interpreter:latest'\nsize = 2\ncode = ['python']\n";

/// Starts the kernel as programs do that have no server for it, and prints how many milliseconds it
/// takes until it has said the value of a cell. To load what speaks with it does not count.
const BY_HAND: &str = r#"
import time
from jupyter_client.manager import start_new_kernel
began = time.perf_counter()
manager, client = start_new_kernel(kernel_name="python")
client.execute("1 + 1")
while client.get_iopub_msg(timeout=60)["msg_type"] != "execute_result":
    pass
print("took", (time.perf_counter() - began) * 1000, flush=True)
manager.shutdown_kernel(now=True)
"#;

#[derive(Debug)]
pub(crate) struct Kernels {
    /// From the request for a sandbox to the value of its first cell.
    pub(crate) cold: Sample,
    pub(crate) by_hand: Sample,
    /// The same for a sandbox that waits in a pool.
    pub(crate) claim: Sample,
    /// `1 + 1` in a context that has run a cell before.
    pub(crate) warm: Sample,
}

impl Kernels {
    /// With the newest of the environments that tests have built, if there are any.
    pub(crate) async fn measure(osb: &Path, built: &Path, count: usize) -> Result<Option<Self>> {
        let Some(archive) = newest(built)? else { return Ok(None) };
        let (server, client) = begin(osb, POOL, &archive).await?;
        let claimed = claimed(&client, count).await;
        let removed = client.remove_all().await;
        server.stop()?;
        let (claim, warm) = removed.and(claimed)?;

        let (server, client) = begin(osb, "", &archive).await?;
        let made = made(&client, count).await;
        let removed = client.remove_all().await;
        server.stop()?;
        let (cold, by_hand) = removed.and(made)?;
        Ok(Some(Self { cold, by_hand, claim, warm }))
    }
}

/// A server with this configuration file, and with the environment.
async fn begin(osb: &Path, settings: &str, archive: &Path) -> Result<(Server, Client)> {
    let server = Server::start(osb, settings).await?;
    let client = server.client();
    client.import(IMAGE, osb_sys::fs::read(archive)?).await?;
    Ok((server, client))
}

/// The first cell of sandboxes that waited, and later ones.
async fn claimed(client: &Client, count: usize) -> Result<(Sample, Sample)> {
    let (mut claim, mut warm) = (Vec::new(), Vec::new());
    for _ in 0..count {
        life::settled(client).await?;
        let began = Instant::now();
        let sandbox = create(client).await?;
        claim.push(add(client, &sandbox).await? - began);
        for _ in 0..5 {
            let began = Instant::now();
            warm.push(add(client, &sandbox).await? - began);
        }
        client.remove(&sandbox.id).await?;
    }
    Ok((Sample::new(claim), Sample::new(warm)))
}

/// The first cell of sandboxes that are made for it, and the kernel by hand beside it.
async fn made(client: &Client, count: usize) -> Result<(Sample, Sample)> {
    let (mut cold, mut by_hand) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let began = Instant::now();
        let sandbox = create(client).await?;
        cold.push(add(client, &sandbox).await? - began);
        by_hand.push(start(client, &sandbox).await?);
        client.remove(&sandbox.id).await?;
    }
    Ok((Sample::new(cold), Sample::new(by_hand)))
}

async fn create(client: &Client) -> Result<Sandbox> {
    let limits = json!({ "cpu": "2", "memory": "2Gi" });
    client.create_with(&json!({ "image": { "uri": IMAGE }, "resourceLimits": limits })).await
}

async fn add(client: &Client, sandbox: &Sandbox) -> Result<Instant> {
    client.cell(sandbox, "1 + 1", "\"text\":\"2\"").await
}

/// Starts the kernel by hand.
async fn start(client: &Client, sandbox: &Sandbox) -> Result<Duration> {
    let mut took = None;
    let command = format!("python3 - <<'END'\n{BY_HAND}\nEND");
    let said = |line: &str| {
        took = took.or_else(|| line.strip_prefix("took ")?.trim().parse::<f64>().ok());
    };
    client.run_lines(sandbox, &command, said).await?;
    Ok(Duration::from_secs_f64(took.context("the kernel did not start by hand")? / 1000.0))
}

/// The archive that was built last.
fn newest(built: &Path) -> Result<Option<PathBuf>> {
    let mut archives = Vec::new();
    for state in osb_sys::fs::names(built).unwrap_or_default() {
        let archive = built.join(state).join("code-interpreter.tar");
        if archive.exists() {
            archives.push((archive.metadata()?.modified()?, archive));
        }
    }
    Ok(archives.into_iter().max().map(|(_, archive)| archive))
}
