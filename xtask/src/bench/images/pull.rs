//! Ten layers from a registry on this machine, beside skopeo.

use std::time::Instant;

use anyhow::{Result, ensure};
use osb_registry::testkit::{Kind, Registry};
use serde_json::json;

use super::{archive::Workbench, nothing_to_write, timed};
use crate::{
    bench::{client::Client, sample::Sample},
    checkout::{output, tool},
};

/// How many layers there are, and how large each is.
const LAYERS: u64 = 10;
const SIZE: u64 = 10_000_000;

/// A registry, where Debian's is installed.
pub(super) async fn start() -> Result<Option<Registry>> {
    let has_skopeo = tool("skopeo").arg("--version").output().is_ok();
    Ok(if has_skopeo { Registry::start(Kind::Open).await } else { None })
}

/// What a server has to be told to use it.
pub(super) fn settings(registry: &Registry) -> String {
    format!("[images.registries.\"{}\"]\ninsecure = true\n", registry.name())
}

pub(super) async fn measure(
    registry: &Registry,
    client: &Client,
    bench: &Workbench,
    rounds: usize,
) -> Result<Option<(Sample, Sample)>> {
    let name = format!("{}/bench/ten:latest", registry.name());
    let mut layers = Vec::new();
    for number in 0..LAYERS {
        layers.push(bench.large_layer(SIZE + number)?);
    }
    client.import(&name, bench.image(&layers)?).await?;
    client.image_events("push", &json!({ "name": name })).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // The first round fills the caches.
    for round in 0..=rounds {
        let directory = tempfile::tempdir_in(bench.directory())?;
        let copy = || {
            output(
                tool("skopeo")
                    .args(["copy", "--quiet", "--src-tls-verify=false"])
                    .arg(format!("docker://{name}"))
                    .arg(format!("dir:{}", directory.path().display())),
            )
        };
        nothing_to_write()?;
        let (_, skopeo) = timed(copy)?;
        directory.close()?;
        client.remove_image(&name).await?;
        client.collect_images().await?;
        nothing_to_write()?;
        let began = Instant::now();
        let said = client.image_events("pull", &json!({ "name": name })).await?;
        let taken = began.elapsed();
        ensure!(said.contains(r#""type":"image""#), "the pull failed: {said}");
        if round > 0 {
            theirs.push(skopeo);
            ours.push(taken);
        }
    }
    Ok(Some((Sample::new(ours), Sample::new(theirs))))
}
