//! `osb audit verify`.

use osb_api::SandboxId;
use osb_audit::{Fault, Verified};
use osb_core::Chain;
use serde::Serialize;

use super::Shelf;
use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    table::Table,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this one [default: all of which there is something]
    #[arg(long, value_name = "ID")]
    sandbox: Option<SandboxId>,
    /// Columns for people, or JSON with every field
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    shelf: Shelf,
}

/// What became of one book.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    sandbox: SandboxId,
    state: State,
    /// The numbers of the first and the last entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    /// Why it cannot be relied on.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Nothing is in it, as if the server had been killed before it wrote the first entry.
    Empty,
    /// More may come.
    Open,
    /// The server was killed while it wrote the next entry.
    Torn,
    Finished,
    Broken,
    /// Nobody can tell.
    Unreadable,
}

pub(super) fn main(
    args: &Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let directory = args.shelf.path(environment)?;
    let all = || osb_audit::books(&directory);
    let sandboxes = args.sandbox.map_or_else(all, |one| Ok(vec![one]))?;
    let mut checked = Vec::new();
    for sandbox in sandboxes {
        let read = osb_audit::read(&directory, sandbox, |_| Ok::<_, Fault>(()));
        checked.push(Checked::new(sandbox, read)?);
    }
    match args.output {
        Format::Json => output.json(&checked)?,
        Format::Table => output.line(&table(&checked))?,
    }
    let broken: Vec<_> = checked.iter().filter_map(|it| it.fault.as_ref().zip(Some(it))).collect();
    for (fault, Checked { sandbox, .. }) in &broken {
        output.say(&format!("{sandbox}: {fault}"));
    }
    Ok(u8::from(!broken.is_empty()))
}

impl Checked {
    fn new(sandbox: SandboxId, read: Result<Verified, Fault>) -> Result<Self, Failure> {
        Ok(match read {
            Ok(Verified { first, last, hash, is_finished, is_torn }) => Self {
                sandbox,
                state: match (is_torn, is_finished) {
                    (true, _) => State::Torn,
                    (false, true) => State::Finished,
                    (false, false) => State::Open,
                },
                first: Some(first),
                last: Some(last),
                hash: Some(hash),
                fault: None,
            },
            Err(Fault::Empty) => Self::without(sandbox, State::Empty, None),
            Err(fault @ Fault::Broken { .. }) => {
                Self::without(sandbox, State::Broken, Some(fault.to_string()))
            }
            // The others are looked at all the same.
            Err(fault @ Fault::Path(_)) => {
                Self::without(sandbox, State::Unreadable, Some(Chain(&fault).to_string()))
            }
            Err(fault @ Fault::Missing(_)) => return Err(fault.into()),
        })
    }

    fn without(sandbox: SandboxId, state: State, fault: Option<String>) -> Self {
        Self { sandbox, state, first: None, last: None, hash: None, fault }
    }
}

fn table(checked: &[Checked]) -> String {
    let mut table = Table::new(["SANDBOX", "STATE", "ENTRIES", "LAST HASH"]);
    for Checked { sandbox, state, first, last, hash, .. } in checked {
        let state = match state {
            State::Empty => "empty",
            State::Open => "open",
            State::Torn => "torn",
            State::Finished => "finished",
            State::Broken => "broken",
            State::Unreadable => "unreadable",
        };
        let entries = first.zip(*last).map(|(first, last)| format!("{first}-{last}"));
        table.row([
            sandbox.to_string(),
            state.to_owned(),
            entries.unwrap_or_default(),
            hash.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use std::io;

    use osb_sys::fs::PathError;

    use super::*;

    #[test]
    fn a_book_is_a_row() {
        let sandbox: SandboxId = "6f1f3f5e-1a2b-4c3d-8e9f-001122334455".parse().unwrap();
        let whole = Verified {
            first: 3,
            last: 9,
            hash: "ab".to_owned(),
            is_finished: true,
            is_torn: false,
        };
        let broken = Fault::Broken { number: 4, file: "/x/000001.jsonl".into(), line: 4 };
        let torn = Verified { is_torn: true, ..whole.clone() };
        let checked: Vec<_> = [Ok(whole), Ok(torn), Err(broken)]
            .into_iter()
            .map(|read| Checked::new(sandbox, read).unwrap())
            .collect();
        assert_eq!(
            table(&checked),
            "SANDBOX                               STATE     ENTRIES  LAST HASH\n\
             6f1f3f5e-1a2b-4c3d-8e9f-001122334455  finished  3-9      ab\n\
             6f1f3f5e-1a2b-4c3d-8e9f-001122334455  torn      3-9      ab\n\
             6f1f3f5e-1a2b-4c3d-8e9f-001122334455  broken"
        );
        let error = PathError::new("read", "/x/000001.jsonl", io::ErrorKind::InvalidInput.into());
        let unreadable = Checked::new(sandbox, Err(error.into())).unwrap();
        assert_eq!(unreadable.state, State::Unreadable);
        assert!(unreadable.fault.unwrap().starts_with("cannot read /x/000001.jsonl: "));
        assert!(Checked::new(sandbox, Err(Fault::Missing(sandbox))).is_err());
        let json = serde_json::to_value(&checked[2]).unwrap();
        assert_eq!(json["state"], "broken");
        let fault = "entry 4 does not fit the one before it (/x/000001.jsonl, line 4)";
        assert_eq!(json["fault"], fault);
    }
}
