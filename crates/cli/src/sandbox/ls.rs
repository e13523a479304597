//! `osb sandbox ls`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use opensandbox::{
    ClientError, Lifecycle,
    api::lifecycle::{ListSandboxesQuery, Sandbox},
};
use osb_core::{Clock, SystemClock};

use crate::{
    age,
    env::Environment,
    failure::Failure,
    output::Output,
    pair::{self, Pair},
    table::Table,
    view::{self, View},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only sandboxes in this state, such as Running; may be repeated
    #[arg(short, long, value_name = "STATE")]
    state: Vec<String>,
    /// Only sandboxes with this label; may be repeated
    #[arg(short, long, value_name = "KEY=VALUE")]
    metadata: Vec<Pair>,
    #[command(flatten)]
    view: View,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.view.lifecycle(environment)?;
    let sandboxes = all(&lifecycle, args.state, pair::to_map(&args.metadata)).await?;
    args.view.show(&*sandboxes, output, |sandboxes| table(sandboxes, SystemClock.now()))
}

pub(super) async fn all(
    lifecycle: &Lifecycle,
    state: Vec<String>,
    metadata: BTreeMap<String, String>,
) -> Result<Vec<Sandbox>, ClientError> {
    let query = ListSandboxesQuery { state, metadata, page: 1, page_size: view::PAGE_SIZE };
    view::all_pages(async |page| {
        let page = lifecycle.list(&ListSandboxesQuery { page, ..query.clone() }).await?;
        Ok((page.items, page.pagination))
    })
    .await
}

fn table(sandboxes: &[Sandbox], now: Timestamp) -> String {
    let mut table = Table::new(["ID", "IMAGE", "STATE", "AGE", "ENDS IN", "METADATA"]);
    for sandbox in sandboxes {
        let labels = sandbox.metadata.iter().flatten();
        let labels: Vec<_> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        let ends =
            sandbox.expires_at.map_or_else(|| "never".to_owned(), |end| age::between(now, end.0));
        table.row([
            sandbox.id.clone(),
            origin(sandbox),
            sandbox.status.state.clone(),
            age::between(sandbox.created_at.0, now),
            ends,
            labels.join(","),
        ]);
    }
    table.render()
}

/// What the sandbox was made from.
pub(super) fn origin(sandbox: &Sandbox) -> String {
    match (&sandbox.image, &sandbox.snapshot_id) {
        (Some(image), _) => image.uri.clone(),
        (None, Some(snapshot)) => format!("snapshot {snapshot}"),
        (None, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use opensandbox::testkit::FakeBackend;

    use super::*;

    #[tokio::test]
    async fn a_sandbox_is_a_row() {
        let backend = FakeBackend::start().await;
        let lifecycle = Lifecycle::new(backend.connection());
        let request = opensandbox::Sandbox::request("host");
        opensandbox::Sandbox::create(&lifecycle, &request).await.unwrap();
        let sandboxes = all(&lifecycle, Vec::new(), BTreeMap::new()).await.unwrap();
        let now = "2030-01-01T00:03:00Z".parse().unwrap();
        assert_eq!(
            table(&sandboxes, now),
            "ID         IMAGE  STATE    AGE  ENDS IN  METADATA\n\
             sandbox-1  host   Running  3m   7m       team=a"
        );
    }
}
