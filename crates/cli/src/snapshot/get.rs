//! `osb snapshot get`.

use opensandbox::api::lifecycle::Snapshot;

use crate::{
    env::Environment,
    failure::Failure,
    output::Output,
    view::{self, View},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The snapshot
    id: String,
    #[command(flatten)]
    view: View,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let snapshot = args.view.lifecycle(environment)?.get_snapshot(&args.id).await?;
    args.view.show(&snapshot, output, describe)
}

fn describe(snapshot: &Snapshot) -> String {
    let status = &snapshot.status;
    view::describe([
        ("id", snapshot.id.clone()),
        ("name", snapshot.name.clone().unwrap_or_default()),
        ("sandbox", snapshot.sandbox_id.clone()),
        ("state", status.state.clone()),
        ("reason", status.reason.clone().unwrap_or_default()),
        ("message", status.message.clone().unwrap_or_default()),
        ("bytes", snapshot.size_bytes.map(|bytes| bytes.to_string()).unwrap_or_default()),
        ("created", snapshot.created_at.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_shown() {
        let snapshot = serde_json::from_str(
            r#"{"id":"s","sandboxId":"x","status":{"state":"Ready"},"createdAt":"2030-01-01T00:00:00Z","sizeBytes":5}"#,
        );
        assert_eq!(
            describe(&snapshot.unwrap()),
            "id          s\n\
             sandbox     x\n\
             state       Ready\n\
             bytes       5\n\
             created     2030-01-01T00:00:00Z"
        );
    }
}
