use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::{
    client::{Client, Sandbox},
    sample::Sample,
};

/// From the request for a sandbox to the first output of its first command, one after another.
pub(crate) async fn create_to_output(client: &Client, count: usize) -> Result<Sample> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        let sandbox = client.create().await?;
        let output = client.run_until(&sandbox, "echo hello", "hello").await?;
        times.push(output - began);
        client.remove(&sandbox.id).await?;
    }
    Ok(Sample::new(times))
}

/// From the first request until every one of `size` sandboxes has run a command.
pub(crate) async fn crowd(client: &Client, size: usize) -> Result<Duration> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..size {
        let client = client.clone();
        tasks.spawn(async move {
            let sandbox = client.create().await?;
            client.run_until(&sandbox, "true", "execution_complete").await?;
            anyhow::Ok(())
        });
    }
    for result in tasks.join_all().await {
        result?;
    }
    let elapsed = began.elapsed();
    client.remove_all().await?;
    Ok(elapsed)
}

/// Bytes per second into a sandbox and out of it.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) upload: f64,
    pub(crate) download: f64,
}

pub(crate) async fn transfer(
    client: &Client,
    sandbox: &Sandbox,
    mebibytes: usize,
) -> Result<Transfer> {
    let size = mebibytes * 1024 * 1024;

    let began = Instant::now();
    client.upload(sandbox, "/tmp/blob", size).await?;
    let upload = per_second(size, began.elapsed());

    let began = Instant::now();
    let came = client.download(sandbox, "/tmp/blob").await?;
    let download = per_second(size, began.elapsed());
    ensure!(came == size, "{came} of {size} bytes came back");
    Ok(Transfer { upload, download })
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
pub(crate) fn per_second(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64()
}
