//! What a run leaves to know: what the network refused, and the policy that would allow it.

use std::{
    fs::Metadata,
    path::{Path, PathBuf},
};

use opensandbox::Lifecycle;

use crate::{
    egress::{self, Refusals},
    failure::Failure,
    output::Output,
    signals::Interrupts,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Aftermath {
    /// At the end, write the policy that would allow what the command tried, for --policy, into a
    /// new file
    #[arg(long, value_name = "FILE", value_parser = new_file, help_heading = "Network")]
    learn: Option<PathBuf>,
    /// Do not say what the network refused, or where flags do not hold
    #[arg(short, long)]
    quiet: bool,
}

impl Aftermath {
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Asks for what the sandbox tried, and tells of it. An interrupt cuts the question short.
    pub(super) async fn tell(
        &self,
        lifecycle: &Lifecycle,
        id: &str,
        interrupts: &mut impl Interrupts,
        output: &mut Output<'_>,
    ) -> Result<(), Failure> {
        if self.quiet && self.learn.is_none() {
            return Ok(());
        }
        let log = tokio::select! {
            log = lifecycle.egress_log(id) => log,
            _ = interrupts.next() => {
                if let Some(file) = &self.learn {
                    output.say(&format!("interrupted: {} was not written", file.display()));
                }
                return Ok(());
            }
        };
        let log = match (log, &self.learn) {
            (Ok(log), _) => log,
            (Err(error), Some(_)) => return Err(error.into()),
            // Not every server keeps a log, and nobody asked for it.
            (Err(_), None) => return Ok(()),
        };
        let refusals = Refusals::of(&log.decisions);
        if let Some(file) = &self.learn {
            if !self.quiet {
                refusals.learnt().tell(output);
            }
            let policy = egress::learn(&log.decisions, output);
            let text = serde_json::to_string_pretty(&policy).unwrap_or_default();
            osb_sys::fs::write(file, format!("{text}\n"))?;
            if !self.quiet {
                let rules = match policy.egress.len() {
                    0 => "no rule: nothing was reached that one could be about".to_owned(),
                    1 => "1 rule".to_owned(),
                    some => format!("{some} rules"),
                };
                output.say(&format!("wrote {} with {rules}", file.display()));
            }
        } else {
            refusals.tell(output);
            if refusals.can_be_learnt() {
                output.say(HINT);
            }
        }
        Ok(())
    }
}

const HINT: &str = "with --learn FILE the next run writes the policy that would allow it";

/// A file that can be made and that takes nobody's place: better known before the command runs than
/// after.
fn new_file(text: &str) -> Result<PathBuf, String> {
    if text == "-" {
        return Err("standard output is the command's: name a file".to_owned());
    }
    let path = PathBuf::from(text);
    let directory = path.parent().filter(|directory| *directory != Path::new(""));
    let is_in_use = |file: Metadata| file.is_file() && file.len() > 0;
    match directory {
        Some(directory) if !directory.is_dir() => {
            Err(format!("there is no directory {}", directory.display()))
        }
        _ if path.is_dir() => Err("it is a directory".to_owned()),
        _ if path.metadata().is_ok_and(is_in_use) => {
            Err("there is such a file: name another, or remove it first".to_owned())
        }
        _ => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_takes_nobodys_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.json");
        let text = file.to_str().unwrap();
        assert_eq!(new_file(text).as_deref(), Ok(&*file));
        osb_sys::fs::write(&file, "").unwrap();
        assert_eq!(new_file(text).as_deref(), Ok(&*file), "there is nothing to lose");
        osb_sys::fs::write(&file, "{}").unwrap();
        assert!(new_file(text).unwrap_err().contains("there is such a file"));
        assert!(new_file("-").unwrap_err().contains("name a file"));
        assert!(new_file(dir.path().to_str().unwrap()).unwrap_err().contains("directory"));
    }
}
