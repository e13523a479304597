//! `osb snapshot get`.

use std::fmt::Write as _;

use opensandbox::api::lifecycle::Snapshot;

use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The snapshot
    id: String,
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
    let snapshot = args.target.lifecycle(environment)?.get_snapshot(&args.id).await?;
    match args.output {
        Format::Table => output.line(&describe(&snapshot))?,
        Format::Json => output.json(&snapshot)?,
    }
    Ok(0)
}

fn describe(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            writeln!(text, "{name:<12}{value}").expect("writing to a string succeeds");
        }
    };
    let status = &snapshot.status;
    line("id", &snapshot.id);
    line("name", snapshot.name.as_deref().unwrap_or_default());
    line("sandbox", &snapshot.sandbox_id);
    line("state", &status.state);
    line("reason", status.reason.as_deref().unwrap_or_default());
    line("message", status.message.as_deref().unwrap_or_default());
    line("bytes", &snapshot.size_bytes.map(|bytes| bytes.to_string()).unwrap_or_default());
    line("created", &snapshot.created_at.to_string());
    text.trim_end().to_owned()
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
