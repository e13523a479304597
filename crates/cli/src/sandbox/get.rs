//! `osb sandbox get`.

use opensandbox::api::lifecycle::Sandbox;

use super::ls;
use crate::{
    env::Environment,
    failure::Failure,
    output::Output,
    view::{self, View},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    #[command(flatten)]
    view: View,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let sandbox = args.view.lifecycle(environment)?.get(&args.id).await?;
    args.view.show(&sandbox, output, describe)
}

fn describe(sandbox: &Sandbox) -> String {
    let status = &sandbox.status;
    let labels = sandbox.metadata.iter().flatten();
    let properties = [
        ("id", sandbox.id.clone()),
        ("image", ls::origin(sandbox)),
        ("state", status.state.clone()),
        ("reason", status.reason.clone().unwrap_or_default()),
        ("message", status.message.clone().unwrap_or_default()),
        ("entrypoint", sandbox.entrypoint.join(" ")),
        ("created", sandbox.created_at.to_string()),
        ("ends", sandbox.expires_at.map_or_else(|| "never".to_owned(), |end| end.to_string())),
    ];
    let labels = labels.map(|(key, value)| ("metadata", format!("{key}={value}")));
    view::describe(properties.into_iter().chain(labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_described_line_by_line() {
        let sandbox = serde_json::from_str(
            r#"{"id":"s","image":{"uri":"host"},"status":{"state":"Failed","message":"no"},
                "metadata":{"a":"b"},"entrypoint":["tail","-f"],"createdAt":"2030-01-01T00:00:00Z"}"#,
        )
        .unwrap();
        assert_eq!(
            describe(&sandbox),
            "id          s\nimage       host\nstate       Failed\nmessage     no\n\
             entrypoint  tail -f\ncreated     2030-01-01T00:00:00Z\nends        never\n\
             metadata    a=b"
        );
    }
}
