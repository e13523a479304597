//! `osb audit log`.

use opensandbox::api::egress::Decision;
use osb_api::SandboxId;
use serde::Deserialize;
use serde_json::Value;

use super::Shelf;
use crate::{
    egress,
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    table::{clean, spaced},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox, which may be gone
    id: SandboxId,
    /// Columns for people, or JSON with every field, one object per line as it is in the file
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    shelf: Shelf,
}

pub(super) fn main(
    args: &Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let directory = args.shelf.path(environment)?;
    if args.output == Format::Table {
        output.line(&spaced(HEADINGS, WIDTHS))?;
    }
    osb_audit::read::<Failure>(&directory, args.id, |line| match args.output {
        Format::Json => output.line(line),
        Format::Table => output.line(&row(line)),
    })?;
    Ok(0)
}

const HEADINGS: [&str; 7] = ["ENTRY", "TIME", "KIND", "WHAT", "WHERE", "WHY", "OUTCOME"];
const WIDTHS: [usize; 7] = [5, 30, 14, 10, 32, 24, 0];

/// An entry as it is written.
#[derive(Debug, Deserialize)]
struct Entry<'a> {
    number: u64,
    at: &'a str,
    kind: &'a str,
    what: Value,
}

fn row(line: &str) -> String {
    // What fits the chain but is nothing that we know is shown as it is.
    let Ok(Entry { number, at, kind, what }) = serde_json::from_str(line) else {
        return clean(line);
    };
    let [what, place, why, outcome] = match serde_json::from_value::<Decision>(what.clone()) {
        Ok(decision) => {
            let [_, _, what, place, why, _, outcome] = egress::cells(&decision);
            [what, place, why, outcome]
        }
        Err(_) => [String::new(), String::new(), String::new(), other(&what)],
    };
    spaced([&number.to_string(), at, kind, &what, &place, &why, &outcome], WIDTHS)
}

/// What is said of something that is no decision.
fn other(what: &Value) -> String {
    let field = |(key, value): (&String, &Value)| match value.as_str() {
        Some(text) => format!("{key} {text}"),
        None => format!("{key} {value}"),
    };
    let fields = what.as_object().map(|fields| fields.iter().map(field).collect::<Vec<_>>());
    fields.unwrap_or_default().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_line() {
        let decision = r#"{"number":7,"at":"2030-01-01T00:00:00Z","sandbox":"s","kind":"egress-denied",
            "what":{"number":1,"at":"2030-01-01T00:00:00Z","protocol":"tcp","name":"a.test","port":443,
            "action":"deny","reason":"default","times":1},"hash":"x"}"#;
        assert_eq!(
            row(decision),
            "7      2030-01-01T00:00:00Z            egress-denied   tcp         a.test:443\
             \u{20}                       default"
        );
        let precise = decision.replacen("00:00Z", "00:00.123456789Z", 1);
        let column = spaced(HEADINGS, WIDTHS).find("KIND");
        assert_eq!(row(&precise).find("egress-denied"), column);
        let missed = r#"{"number":8,"at":"2030-01-01T00:00:00Z","sandbox":"s","kind":"missed",
            "what":{"count":12,"of":"tcp-denied"},"hash":"x"}"#;
        assert!(row(missed).ends_with("count 12, of tcp-denied"), "{}", row(missed));
        let finished = r#"{"number":9,"at":"2030-01-01T00:00:00Z","sandbox":"s","kind":"finished",
            "what":null,"hash":"x"}"#;
        assert!(row(finished).ends_with("finished"), "{}", row(finished));
        assert_eq!(row("{}"), "{}");
    }
}
