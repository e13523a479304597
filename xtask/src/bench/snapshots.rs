//! Keeping files, and starting with them.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use super::{client::Client, sample::Sample};

/// How long it takes to keep 10 MB, and to start a sandbox that has them.
#[derive(Debug)]
pub(crate) struct Snapshots {
    pub(crate) take: Sample,
    pub(crate) restore: Sample,
}

impl Snapshots {
    pub(crate) async fn measure(client: &Client, count: usize) -> Result<Self> {
        let source = client.create().await?;
        let write = "head -c 10000000 /dev/urandom > /srv/changed";
        client.run_until(&source, write, "execution_complete").await?;
        let (mut take, mut restore) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let began = Instant::now();
            let snapshot = client.take_snapshot(&source.id).await?;
            take.push(began.elapsed());

            let began = Instant::now();
            let restored = client.create_from("snapshotId", json!(snapshot)).await?;
            let output = client.run_until(&restored, "echo hello", "hello").await?;
            restore.push(output - began);
            client.remove(&restored.id).await?;
            client.delete_snapshot(&snapshot).await?;
        }
        client.remove(&source.id).await?;
        Ok(Self { take: Sample::new(take), restore: Sample::new(restore) })
    }
}
