//! `osb snapshot ls`.

use jiff::Timestamp;
use opensandbox::{
    ClientError, Lifecycle,
    api::lifecycle::{ListSnapshotsQuery, Snapshot},
};
use osb_core::{Clock, SystemClock};

use crate::{
    age,
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    table::Table,
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only snapshots of this sandbox
    #[arg(long, value_name = "ID")]
    sandbox: Option<String>,
    /// Only snapshots with this name
    #[arg(short, long)]
    name: Option<String>,
    /// Only snapshots in this state, such as Ready; may be repeated
    #[arg(short, long, value_name = "STATE")]
    state: Vec<String>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.target.lifecycle(environment)?;
    let query = ListSnapshotsQuery {
        sandbox_id: args.sandbox,
        name: args.name,
        state: args.state,
        page: 1,
        page_size: 200,
    };
    let snapshots = all(&lifecycle, query).await?;
    match args.output {
        Format::Table => output.line(&table(&snapshots, SystemClock.now()))?,
        Format::Json => output.json(&snapshots)?,
    }
    Ok(0)
}

async fn all(
    lifecycle: &Lifecycle,
    mut query: ListSnapshotsQuery,
) -> Result<Vec<Snapshot>, ClientError> {
    let mut snapshots = Vec::new();
    loop {
        let page = lifecycle.list_snapshots(&query).await?;
        snapshots.extend(page.items);
        if !page.pagination.has_next_page {
            return Ok(snapshots);
        }
        query.page += 1;
    }
}

fn table(snapshots: &[Snapshot], now: Timestamp) -> String {
    let mut table = Table::new(["ID", "NAME", "SANDBOX", "STATE", "AGE", "BYTES"]);
    for snapshot in snapshots {
        table.row([
            snapshot.id.clone(),
            snapshot.name.clone().unwrap_or_else(|| "-".to_owned()),
            snapshot.sandbox_id.clone(),
            snapshot.status.state.clone(),
            age::between(snapshot.created_at.0, now),
            snapshot.size_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_a_row() {
        let snapshot = serde_json::from_str(
            r#"{"id":"s","sandboxId":"x","status":{"state":"Creating"},"createdAt":"2030-01-01T00:00:00Z"}"#,
        );
        assert_eq!(
            table(&[snapshot.unwrap()], "2030-01-01T00:03:00Z".parse().unwrap()),
            "ID  NAME  SANDBOX  STATE     AGE  BYTES\n\
             s   -     x        Creating  3m   -"
        );
    }
}
