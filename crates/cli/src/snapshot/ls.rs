//! `osb snapshot ls`.

use jiff::Timestamp;
use opensandbox::api::lifecycle::{ListSnapshotsQuery, Snapshot};
use osb_core::{Clock, SystemClock};

use crate::{
    age,
    env::Environment,
    failure::Failure,
    output::Output,
    table::Table,
    view::{self, View},
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
    #[command(flatten)]
    view: View,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.view.lifecycle(environment)?;
    let query = ListSnapshotsQuery {
        sandbox_id: args.sandbox,
        name: args.name,
        state: args.state,
        page: 1,
        page_size: view::PAGE_SIZE,
    };
    let snapshots = view::all_pages(async |page| {
        let page = lifecycle.list_snapshots(&ListSnapshotsQuery { page, ..query.clone() }).await?;
        Ok((page.items, page.pagination))
    })
    .await?;
    args.view.show(&*snapshots, output, |snapshots| table(snapshots, SystemClock.now()))
}

fn table(snapshots: &[Snapshot], now: Timestamp) -> String {
    let mut table = Table::new(["ID", "NAME", "SANDBOX", "STATE", "AGE", "BYTES"]);
    for snapshot in snapshots {
        table.row([
            snapshot.id.clone(),
            view::or_dash(snapshot.name.as_ref()),
            snapshot.sandbox_id.clone(),
            snapshot.status.state.clone(),
            age::between(snapshot.created_at.0, now),
            view::or_dash(snapshot.size_bytes),
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
