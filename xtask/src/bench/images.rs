//! Images: unpacked, stacked, built and pulled, each beside the program that people know for it.

mod archive;
mod pull;

use std::{
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::json;

use self::archive::{Layers, Workbench};
use super::{client::Client, sample::Sample, server::Server};
use crate::checkout::{output, tool};

/// How many layers the image has that is compared with one of a single layer.
const MANY: usize = 40;
/// How large the layer is that is unpacked.
const LAYER: u64 = 200_000_000;
/// How often what takes a second or more is done.
const ROUNDS: usize = 5;

/// How many steps the Dockerfile has that change files.
const STEPS: usize = 9;
/// A Dockerfile of ten lines and more, half of which run something.
const DOCKERFILE: &str = "FROM bench-one\n\
    ENV A=1\nWORKDIR /work\nCOPY a.txt .\nRUN echo one > one\nRUN echo two > two\n\
    COPY b.txt sub/\nRUN echo three > three\nLABEL x=y\nRUN echo four > four\nRUN echo five > five\n";

/// What was found about images.
#[derive(Debug)]
pub(crate) struct Images {
    /// Unpacking a layer, and `tar` doing the same.
    pub(crate) unpack: Sample,
    pub(crate) tar: Sample,
    /// Creating from an image of one layer, and from one of forty.
    pub(crate) one: Sample,
    pub(crate) forty: Sample,
    /// A build in which nothing is left to do.
    pub(crate) rebuild: Sample,
    /// Pulling ten layers, and skopeo doing the same; nothing without a registry or skopeo.
    pub(crate) pull: Option<(Sample, Sample)>,
}

impl Images {
    pub(crate) async fn measure(osb: &Path, count: usize) -> Result<Self> {
        let bench = Workbench::open()?;
        let (unpack, tar) = unpack(&bench)?;
        let registry = pull::start().await?;
        let settings = registry.as_ref().map(pull::settings).unwrap_or_default();
        let server = Server::start(osb, &settings).await?;
        let client = server.client();
        let measured = async {
            let program = bench.program_layer()?;
            let mut layers = vec![program];
            client.import("bench-one", bench.image(&layers)?).await?;
            for number in 1..MANY {
                layers.push(bench.small_layer(number)?);
            }
            client.import("bench-forty", bench.image(&layers)?).await?;
            let (one, forty) = stacked(&client, count).await?;
            let rebuild = rebuild(&client, count).await?;
            let pull = match &registry {
                Some(registry) => pull::measure(registry, &client, &bench, ROUNDS).await?,
                None => None,
            };
            Ok(Self { unpack, tar, one, forty, rebuild, pull })
        };
        let measured = measured.await;
        let removed = client.remove_all().await;
        server.stop()?;
        removed.and(measured)
    }
}

/// Unpacks one archive again and again, in turn with `tar`.
fn unpack(bench: &Workbench) -> Result<(Sample, Sample)> {
    let layer = bench.large_layer(LAYER)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // The first round fills the caches.
    for round in 0..=ROUNDS {
        let directory = tempfile::tempdir_in(bench.directory())?;
        nothing_to_write()?;
        let began = Instant::now();
        output(tool("tar").arg("-xf").arg(&layer.path).arg("-C").arg(directory.path()))?;
        let tar = began.elapsed();
        directory.close()?;
        nothing_to_write()?;
        let taken = bench.unpack(&layer)?;
        if round > 0 {
            theirs.push(tar);
            ours.push(taken);
        }
    }
    Ok((Sample::new(ours), Sample::new(theirs)))
}

/// Creates from both images in turn.
async fn stacked(client: &Client, count: usize) -> Result<(Sample, Sample)> {
    let (mut one, mut forty) = (Vec::new(), Vec::new());
    for round in 0..count + 3 {
        for (image, times) in [("bench-one", &mut one), ("bench-forty", &mut forty)] {
            let began = Instant::now();
            let sandbox = client.create_from("image", json!({ "uri": image })).await?;
            let output = client.run_until(&sandbox, "echo hello", "hello").await?;
            if round >= 3 {
                times.push(output - began);
            }
            client.remove(&sandbox.id).await?;
        }
    }
    Ok((Sample::new(one), Sample::new(forty)))
}

/// Builds the same twice and more; the first time everything is done.
async fn rebuild(client: &Client, count: usize) -> Result<Sample> {
    let request = json!({ "names": ["bench-built"] }).to_string();
    let mut archive = Vec::new();
    let mut layers = Layers::new(&mut archive);
    layers.file("build.json", request.as_bytes())?;
    for (name, content) in [("Dockerfile", DOCKERFILE), ("a.txt", "a"), ("b.txt", "b")] {
        layers.file(&format!("context/{name}"), content.as_bytes())?;
    }
    layers.finish()?.flush()?;
    let mut times = Vec::new();
    for round in 0..=count.min(50) {
        let began = Instant::now();
        let said = client.build(archive.clone()).await?;
        let taken = began.elapsed();
        ensure!(said.contains(r#""type":"image""#), "the build failed: {said}");
        if round > 0 {
            // All but the image that it begins with.
            let cached = said.matches(r#""type":"cached""#).count();
            ensure!(cached == STEPS - 1, "something was built again: {said}");
            times.push(taken);
        }
    }
    Ok(Sample::new(times))
}

/// Waits for the disk, so that nobody is measured beside what somebody else has left for it to do.
fn nothing_to_write() -> Result<()> {
    output(&mut tool("sync")).map(drop)
}

/// Runs something and says how long it took.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let began = Instant::now();
    let done = work()?;
    Ok((done, began.elapsed()))
}
