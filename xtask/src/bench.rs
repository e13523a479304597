//! Measures a real server over plain HTTP, beside what the bare kernel, Docker and runc need in the
//! same run. Nothing here asserts an absolute time: machines differ, ratios travel.

mod asker;
mod client;
mod code;
mod daemon;
mod docker;
mod floor;
mod hosts;
mod images;
mod kernels;
mod life;
mod measure;
mod memory;
mod network;
mod plane;
pub(crate) mod probe;
mod proxies;
mod question;
mod runc;
mod sample;
mod server;
mod snapshots;
mod table;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use clap::Args;
use osb_core::Clock as _;

use crate::checkout;
use client::Client;
use code::Code;
use daemon::Daemon;
use images::Images;
use life::{Changes, Many};
use network::Network;
use plane::Plane;
use sample::Sample;
use server::Server;
use snapshots::Snapshots;
use table::Report;

/// The pool that claims are measured with.
const POOL: &str = "[[pool]]\nimage = 'host'\nsize = 8\n";
/// The same, with an interpreter in each.
const CODE_POOL: &str = "[[pool]]\nimage = 'host'\nsize = 8\ncode = ['python']\n";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The binary to measure.
    #[arg(long, default_value = "target/release/osb")]
    osb: PathBuf,
    /// How often creating a sandbox is measured, and half as often each other latency.
    #[arg(long, default_value_t = 200)]
    count: usize,
    /// How many sandboxes are made at once.
    #[arg(long, default_value_t = 100)]
    crowd: usize,
    /// How many idle sandboxes there are at most, as far as there is memory for them.
    #[arg(long, default_value_t = 1000)]
    many: usize,
    /// How much is uploaded and downloaded, in MiB.
    #[arg(long, default_value_t = 1024)]
    mebibytes: usize,
    /// Where tests keep the environments that they have built.
    #[arg(long)]
    environments: Option<PathBuf>,
    /// The example `pretend` of the server, to measure the server without sandboxes.
    #[arg(long)]
    pretend: Option<PathBuf>,
    /// Measure nothing but this.
    #[arg(long, value_enum)]
    only: Option<Part>,
}

/// What can be measured by itself, for those who work on it.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Part {
    /// Claims from a warm pool
    Claims,
    /// Cells of code
    Code,
    /// Unpacking, stacking, building and pulling images
    Images,
    /// The server by itself
    Plane,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let osb = checkout::root().join(&options.osb);
    match options.only {
        Some(Part::Claims) => {
            let claims = runtime.block_on(claims(&osb, options.count))?;
            let [p10, p50, p90] = [10, 50, 90].map(|percent| claims.percentile(percent));
            println!("warm claim to first output: p10 {p10:.2}, p50 {p50:.2}, p90 {p90:.2} ms");
            return Ok(ExitCode::SUCCESS);
        }
        Some(Part::Code) => {
            let code = runtime.block_on(Code::measure(
                &osb,
                CODE_POOL,
                options.environments.as_deref(),
                options.count / 2,
            ))?;
            println!("{}", table::of_code(&code));
            return Ok(ExitCode::SUCCESS);
        }
        Some(Part::Images) => {
            let images = runtime.block_on(Images::measure(&osb, options.count / 2))?;
            println!("{}", table::of_images(&images));
            return Ok(ExitCode::SUCCESS);
        }
        Some(Part::Plane) => {
            let plane = runtime.block_on(plane(&osb, options))?;
            println!("{}", table::of_plane(&plane));
            return Ok(ExitCode::SUCCESS);
        }
        None => {}
    }
    let report = runtime.block_on(async {
        let warm = claims(&osb, options.count / 2).await?;
        let network = Network::measure(&osb, options.count, options.mebibytes).await?;
        let images = Images::measure(&osb, options.count / 2).await?;
        let code =
            Code::measure(&osb, CODE_POOL, options.environments.as_deref(), options.count / 4)
                .await?;
        let plane = plane(&osb, options).await?;
        let server = Server::start(&osb, "").await?;
        let client = server.client();
        let parts = (warm, network, images, code, plane);
        let report = measure_all(&server, &client, options, parts).await;
        // Sandboxes outlive their server, so they go first, also after a failure.
        let removed = client.remove_all().await;
        server.stop()?;
        removed.and(report)
    })?;
    println!("{report}");
    let path = save(&report)?;
    println!("\nwritten to {}", path.display());
    Ok(ExitCode::SUCCESS)
}

async fn plane(osb: &Path, options: &Options) -> Result<Plane> {
    Plane::measure(osb, options.pretend.as_deref(), options.count, options.many).await
}

/// How fast sandboxes are claimed from a pool, at a server of its own.
async fn claims(osb: &Path, count: usize) -> Result<Sample> {
    let server = Server::start(osb, POOL).await?;
    let client = server.client();
    let claims = async {
        life::claim_to_output(&client, 5).await?;
        life::claim_to_output(&client, count).await
    };
    let claims = claims.await;
    let removed = client.remove_all().await;
    server.stop()?;
    removed.and(claims)
}

async fn measure_all(
    server: &Server,
    client: &Client,
    options: &Options,
    (warm, network, images, code, plane): (Sample, Network, Images, Code, Plane),
) -> Result<Report> {
    let half = options.count / 2;
    // The first sandbox pays for pages that all later ones share.
    measure::create_to_output(client, 5).await?;

    let create = measure::create_to_output(client, options.count).await?;
    let crowd = measure::crowd(client, options.crowd).await?;
    let changes = Changes::measure(client, half).await?;
    let many = Many::measure(client, options.many).await?;
    let snapshots = Snapshots::measure(client, half).await?;
    let daemon = Daemon::measure(server, client, half, options.mebibytes).await?;
    Ok(Report {
        create,
        warm,
        crowd_size: options.crowd,
        crowd,
        changes,
        many,
        snapshots,
        daemon,
        network,
        images,
        code,
        plane,
        namespaces_floor: floor::namespaces(half),
        loopback_floor: floor::loopback(options.mebibytes)?,
        docker: docker::run_to_output(half.min(20))?,
        runc: runc::run_to_output(half.min(20))?,
    })
}

fn save(report: &Report) -> Result<PathBuf> {
    let directory = checkout::root().join("bench/results");
    osb_sys::fs::create_dir_all(&directory)?;
    let now = osb_core::SystemClock.now();
    let path = directory.join(format!("{}.json", now.strftime("%Y%m%dT%H%M%SZ")));
    let mut json = serde_json::to_string_pretty(&report.json()).context("cannot write results")?;
    json.push('\n');
    osb_sys::fs::write(&path, json)?;
    Ok(path)
}
