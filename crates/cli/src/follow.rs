//! A command's output, live.

use opensandbox::{
    Events, Outcome,
    api::execd::{Event, EventKind},
    output_line,
};

use crate::{failure::Failure, output::Output};

/// Copies what the command writes until it ends, and says how it ended.
pub(crate) async fn follow(
    events: &mut Events,
    output: &mut Output<'_>,
) -> Result<Outcome, Failure> {
    let mut outcome = None;
    while let Some(event) = events.next().await? {
        write(&event, output)?;
        outcome = Outcome::of(&event).or(outcome);
    }
    let outcome =
        outcome.unwrap_or_else(|| Outcome::NotStarted("it was never reported".to_owned()));
    if let Outcome::NotStarted(reason) = &outcome {
        output.say(&format!("the command did not start: {reason}"));
    }
    Ok(outcome)
}

fn write(event: &Event, output: &mut Output<'_>) -> Result<(), Failure> {
    match (event.kind, &event.text) {
        (EventKind::Stdout, Some(text)) => output.data(output_line(text).as_bytes()),
        (EventKind::Stderr, Some(text)) => output.error_data(output_line(text).as_bytes()),
        _ => Ok(()),
    }
}
