//! Code that remembers: how soon a cell answers, and how fast it prints.

use std::{path::Path, time::Instant};

use anyhow::Result;

use super::{
    client::{Client, Sandbox},
    floor,
    kernels::Kernels,
    life,
    measure::per_second,
    sample::Sample,
    server::Server,
};

/// How much a cell prints.
const PRINTED: usize = 10_000_000;
/// How often that is repeated; the median counts.
const ROUNDS: usize = 5;

#[derive(Debug)]
pub(crate) struct Code {
    /// `1 + 1` in a context that has run a cell before.
    pub(crate) warm: Sample,
    /// From the request for a sandbox that waits in a pool to the value of its first cell.
    pub(crate) claim: Sample,
    /// The same for a sandbox that is made for it.
    pub(crate) cold: Sample,
    /// Python by hand, from its start to its output.
    pub(crate) by_hand: Sample,
    /// The first cell of a sandbox that is there, without a context.
    pub(crate) first: Sample,
    /// The same as a command, `python3 -c`.
    pub(crate) command: Sample,
    /// Bytes per second out of one cell.
    pub(crate) output: f64,
    /// If there is an environment with some.
    pub(crate) kernels: Option<Kernels>,
}

impl Code {
    /// At a server with this configuration file, which has a pool, and at one without.
    /// Kernels are those of the newest environment that was built there.
    pub(crate) async fn measure(
        osb: &Path,
        pool: &str,
        built: Option<&Path>,
        count: usize,
    ) -> Result<Self> {
        let server = Server::start(osb, pool).await?;
        let client = server.client();
        let claimed = claimed(&client, count).await;
        let removed = client.remove_all().await;
        server.stop()?;
        let (claim, warm, output) = removed.and(claimed)?;

        let server = Server::start(osb, "").await?;
        let client = server.client();
        let made = made(&client, count).await;
        let removed = client.remove_all().await;
        server.stop()?;
        let Made { cold, by_hand, first, command } = removed.and(made)?;
        let kernels = match built {
            Some(built) => Kernels::measure(osb, built, count.div_ceil(5)).await?,
            None => None,
        };
        Ok(Self { warm, claim, cold, by_hand, first, command, output, kernels })
    }
}

/// The first cell of sandboxes that waited, a later one, and how fast one prints.
async fn claimed(client: &Client, count: usize) -> Result<(Sample, Sample, f64)> {
    let (mut firsts, mut later) = (Vec::new(), Vec::new());
    for _ in 0..count {
        life::settled(client).await?;
        let began = Instant::now();
        let sandbox = client.create().await?;
        firsts.push(add(client, &sandbox).await? - began);
        for _ in 0..5 {
            let began = Instant::now();
            later.push(add(client, &sandbox).await? - began);
        }
        client.remove(&sandbox.id).await?;
    }
    let sandbox = client.create().await?;
    add(client, &sandbox).await?;
    let code = format!("import sys; sys.stdout.write('x' * {PRINTED}); None");
    let mut speeds = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        client.cell(&sandbox, &code, "execution_complete").await?;
        speeds.push(per_second(PRINTED, began.elapsed()));
    }
    speeds.sort_unstable_by(f64::total_cmp);
    let output = speeds.get(ROUNDS / 2).copied().unwrap_or(f64::NAN);
    Ok((Sample::new(firsts), Sample::new(later), output))
}

/// What is measured with sandboxes that are made for it.
struct Made {
    cold: Sample,
    by_hand: Sample,
    first: Sample,
    command: Sample,
}

/// The first cell of sandboxes that are made for it, and Python by hand beside it; and of those that
/// are there, beside Python as a command.
async fn made(client: &Client, count: usize) -> Result<Made> {
    let (mut cold, mut by_hand) = (Vec::new(), Vec::new());
    let (mut first, mut command) = (Vec::new(), Vec::new());
    for round in 0..count {
        let began = Instant::now();
        let sandbox = client.create().await?;
        cold.push(add(client, &sandbox).await? - began);
        client.remove(&sandbox.id).await?;
        by_hand.push(floor::python()?);
        let sandbox = client.create().await?;
        client.run_argv(&sandbox, &["true"]).await?;
        // In turns: the second finds everything as the first has left it.
        for is_command in [round % 2 == 0, round % 2 != 0] {
            let began = Instant::now();
            if is_command {
                let print = "python3 -c 'print(1 + 1)'";
                command.push(client.run_until(&sandbox, print, "\"2\"").await? - began);
            } else {
                first.push(add(client, &sandbox).await? - began);
            }
        }
        client.remove(&sandbox.id).await?;
    }
    let [cold, by_hand, first, command] = [cold, by_hand, first, command].map(Sample::new);
    Ok(Made { cold, by_hand, first, command })
}

/// Runs the smallest cell; returns the moment at which its value was here.
async fn add(client: &Client, sandbox: &Sandbox) -> Result<Instant> {
    client.cell(sandbox, "1 + 1", "\"text\":\"2\"").await
}
