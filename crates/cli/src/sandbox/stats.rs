//! `osb sandbox stats`.

use std::collections::BTreeMap;

use opensandbox::{
    ClientError, Lifecycle,
    api::{codes, lifecycle::SandboxUsage},
};
use serde::Serialize;

use super::ls;
use crate::{
    env::Environment,
    failure::Failure,
    output::Output,
    table::Table,
    view::{self, View},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandboxes; all that run or are paused if none is named
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    view: View,
}

#[derive(Debug, Serialize)]
struct Stats {
    id: String,
    #[serde(flatten)]
    usage: SandboxUsage,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.view.lifecycle(environment)?;
    let stats =
        if args.ids.is_empty() { all(&lifecycle).await? } else { of(&lifecycle, args.ids).await? };
    args.view.show(&*stats, output, table)
}

async fn of(lifecycle: &Lifecycle, ids: Vec<String>) -> Result<Vec<Stats>, ClientError> {
    let mut stats = Vec::new();
    for id in ids {
        let usage = lifecycle.usage(&id).await?;
        stats.push(Stats { id, usage });
    }
    Ok(stats)
}

async fn all(lifecycle: &Lifecycle) -> Result<Vec<Stats>, ClientError> {
    let wanted = ["Running", "Paused"].map(str::to_owned).to_vec();
    let mut stats = Vec::new();
    for sandbox in ls::all(lifecycle, wanted, BTreeMap::new()).await? {
        match lifecycle.usage(&sandbox.id).await {
            Ok(usage) => stats.push(Stats { id: sandbox.id, usage }),
            // It ended since it was listed.
            Err(ClientError::Api { code, .. }) if ENDED.contains(&code.as_str()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(stats)
}

const ENDED: [&str; 2] = [codes::SANDBOX_NOT_FOUND, codes::SANDBOX_NOT_RUNNING];

fn table(stats: &[Stats]) -> String {
    let mut table = Table::new(["ID", "CPU TIME", "MEMORY", "PEAK", "PROCESSES", "DISK"]);
    for Stats { id, usage } in stats {
        let optional = |bytes: Option<u64>| view::or_dash(bytes.map(mebibytes));
        table.row([
            id.clone(),
            format!("{}.{:03} s", usage.cpu_time_ms / 1000, usage.cpu_time_ms % 1000),
            mebibytes(usage.memory_bytes),
            optional(usage.memory_peak_bytes),
            usage.processes.to_string(),
            optional(usage.disk_bytes),
        ]);
    }
    table.render()
}

fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / (1 << 20);
    format!("{}.{} Mi", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_a_row() {
        let usage = SandboxUsage {
            cpu_time_ms: 1205,
            memory_bytes: 3 << 19,
            memory_peak_bytes: Some(2 << 20),
            processes: 4,
            disk_bytes: None,
        };
        assert_eq!(
            table(&[Stats { id: "s".to_owned(), usage }]),
            "ID  CPU TIME  MEMORY  PEAK    PROCESSES  DISK\n\
             s   1.205 s   1.5 Mi  2.0 Mi  4          -"
        );
    }
}
