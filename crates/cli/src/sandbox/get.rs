//! `osb sandbox get`.

use std::fmt::Write as _;

use opensandbox::api::lifecycle::Sandbox;

use super::ls;
use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
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
    let sandbox = args.target.lifecycle(environment)?.get(&args.id).await?;
    match args.output {
        Format::Table => output.line(&describe(&sandbox))?,
        Format::Json => output.json(&sandbox)?,
    }
    Ok(0)
}

fn describe(sandbox: &Sandbox) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            writeln!(text, "{name:<12}{value}").expect("writing to a string succeeds");
        }
    };
    let status = &sandbox.status;
    line("id", &sandbox.id);
    line("image", &ls::origin(sandbox));
    line("state", &status.state);
    line("reason", status.reason.as_deref().unwrap_or_default());
    line("message", status.message.as_deref().unwrap_or_default());
    line("entrypoint", &sandbox.entrypoint.join(" "));
    line("created", &sandbox.created_at.to_string());
    line("ends", &sandbox.expires_at.map_or_else(|| "never".to_owned(), |end| end.to_string()));
    for (key, value) in sandbox.metadata.iter().flatten() {
        line("metadata", &format!("{key}={value}"));
    }
    text.trim_end().to_owned()
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
