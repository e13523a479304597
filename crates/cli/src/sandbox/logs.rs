//! `osb sandbox logs` and `osb sandbox events`.

use opensandbox::api::diagnostics::{Diagnostics, EventsQuery, LogsQuery};

use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    /// The sandbox
    id: String,
    /// How many lines, from the end
    #[arg(short = 'n', long, value_name = "LINES", default_value_t = 100)]
    tail: u32,
    /// Only what was printed of late: a number of s, m, h or d
    #[arg(short, long, value_name = "SPAN")]
    since: Option<String>,
    #[command(flatten)]
    shown: Shown,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    /// The sandbox
    id: String,
    /// Which: runtime, lifecycle, network or all
    #[arg(short, long, value_name = "SCOPE", default_value = "all")]
    scope: String,
    /// How many, the latest
    #[arg(short = 'n', long, value_name = "EVENTS", default_value_t = 50)]
    limit: u32,
    #[command(flatten)]
    shown: Shown,
}

#[derive(Debug, clap::Args)]
struct Shown {
    /// The text itself, or JSON with every field
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn logs(
    args: LogsArgs,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let LogsArgs { id, tail, since, shown } = args;
    let query = LogsQuery { tail: Some(tail), since, ..LogsQuery::default() };
    let logs = shown.target.lifecycle(environment)?.logs(&id, &query).await?;
    show(&logs, "--tail", shown.output, output)
}

pub(crate) async fn events(
    args: EventsArgs,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let EventsArgs { id, scope, limit, shown } = args;
    let query = EventsQuery { scope: Some(scope), limit: Some(limit) };
    let events = shown.target.lifecycle(environment)?.events(&id, &query).await?;
    show(&events, "--limit", shown.output, output)
}

/// Shows the text, and says what is missing in it.
fn show(
    found: &Diagnostics,
    for_more: &str,
    format: Format,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    if format == Format::Json {
        output.json(found)?;
        return Ok(0);
    }
    for warning in &found.warnings {
        output.say(warning);
    }
    output.data(found.content.as_deref().unwrap_or_default().as_bytes())?;
    if found.truncated {
        output.say(&format!("there was more before that: {for_more} says how much to show"));
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use opensandbox::api::diagnostics::{Delivery, DiagnosticsKind};

    use super::*;

    #[test]
    fn text_is_data_and_what_is_missing_is_talk() {
        let found = Diagnostics {
            sandbox_id: "s".to_owned(),
            kind: DiagnosticsKind::Logs,
            scope: "all".to_owned(),
            delivery: Delivery::Inline,
            content_type: "text/plain".to_owned(),
            content: Some("hello\n".to_owned()),
            content_length: Some(6),
            content_url: None,
            expires_at: None,
            truncated: true,
            warnings: vec!["the sandbox is paused".to_owned()],
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        show(&found, "--tail", Format::Table, &mut output).unwrap();
        assert_eq!(out, b"hello\n");
        let said = String::from_utf8(err).unwrap();
        assert!(said.starts_with("osb: the sandbox is paused\n") && said.contains("--tail"));
    }
}
