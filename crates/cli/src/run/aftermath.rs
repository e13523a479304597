//! What a run leaves to know: what the network refused, and the policy that would allow it.

use std::path::{Path, PathBuf};

use opensandbox::Lifecycle;

use crate::{
    egress::{self, Refusals},
    failure::Failure,
    output::Output,
    signals::Interrupts,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Aftermath {
    /// At the end, write the policy that would allow what the command tried, for --policy
    #[arg(long, value_name = "FILE", value_parser = beside_others, help_heading = "Network")]
    learn: Option<PathBuf>,
    /// Do not say at the end what the network refused
    #[arg(short, long)]
    quiet: bool,
}

impl Aftermath {
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

/// A file that can be made: better known before the command runs than after.
fn beside_others(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let directory = path.parent().filter(|directory| *directory != Path::new(""));
    match directory {
        Some(directory) if !directory.is_dir() => {
            Err(format!("there is no directory {}", directory.display()))
        }
        _ if path.is_dir() => Err("it is a directory".to_owned()),
        _ => Ok(path),
    }
}
