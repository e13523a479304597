//! Measures a real server over plain HTTP, beside what the bare kernel and Docker need in the same
//! run. Nothing here asserts an absolute time: machines differ, ratios travel.

mod client;
mod daemon;
mod docker;
mod floor;
mod measure;
mod memory;
mod sample;
mod server;
mod table;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;
use osb_core::Clock as _;

use crate::checkout;
use client::Client;
use daemon::Daemon;
use server::Server;
use table::Report;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The binary to measure.
    #[arg(long, default_value = "target/release/osb")]
    osb: PathBuf,
    /// How often each latency is measured.
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// How many sandboxes are made at once, and how many idle ones are weighed.
    #[arg(long, default_value_t = 100)]
    crowd: usize,
    /// How much is uploaded and downloaded, in MiB.
    #[arg(long, default_value_t = 1024)]
    mebibytes: usize,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let osb = checkout::root().join(&options.osb);
    let report = runtime.block_on(async {
        let server = Server::start(&osb).await?;
        let client = server.client();
        let report = measure_all(&server, &client, options).await;
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

async fn measure_all(server: &Server, client: &Client, options: &Options) -> Result<Report> {
    // The first sandbox pays for pages that all later ones share.
    measure::create_to_output(client, 5).await?;

    let create = measure::create_to_output(client, options.count).await?;
    let crowd = measure::crowd(client, options.crowd).await?;
    let private_memory = measure::idle_memory(client, options.crowd).await?;
    let daemon = Daemon::measure(server, client, options.count, options.mebibytes).await?;
    Ok(Report {
        create,
        crowd_size: options.crowd,
        crowd,
        private_memory,
        daemon,
        namespaces_floor: floor::namespaces(options.count),
        loopback_floor: floor::loopback(options.mebibytes)?,
        docker: docker::run_to_output(options.count.min(20))?,
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
