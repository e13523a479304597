//! A command in a sandbox: its words, its life, and its end.

use std::time::Duration;

use opensandbox::{
    Events, Execd, Outcome,
    api::execd::{Event, EventKind, RunCommand},
    output_line,
};
use tokio::time::Instant;

use crate::{ending, failure::Failure, lifetime::Lifetime, output::Output};

/// The command to run in a sandbox.
#[derive(Debug, clap::Args)]
pub(crate) struct Invocation {
    /// Hand the words to the sandbox's shell, as in --shell -- 'ls *.txt | wc -l'
    #[arg(long)]
    shell: bool,
    /// The directory in the sandbox to run in
    #[arg(short, long, value_name = "DIR")]
    workdir: Option<String>,
    /// End the command after this time, such as 90s or 10m
    #[arg(short, long, value_name = "TIME")]
    timeout: Option<Lifetime>,
    /// The program and its arguments; its standard input is empty
    #[arg(last = true, required = true, value_name = "COMMAND")]
    words: Vec<String>,
}

impl Invocation {
    pub(crate) async fn start(&self, execd: &Execd) -> Result<Running, Failure> {
        // The clock starts before execd's does: a command that ran into its limit never seems to
        // have stayed below it.
        let started = Instant::now();
        let events = execd.run(&self.command()).await?;
        Ok(Running { events, started, limit: self.timeout.map(Lifetime::duration) })
    }

    fn command(&self) -> RunCommand {
        let (command, argv) = if self.shell {
            (Some(self.words.join(" ")), None)
        } else {
            (None, Some(self.words.clone()))
        };
        let millis = |limit: Lifetime| i64::try_from(limit.duration().as_millis()).ok();
        RunCommand {
            command,
            argv,
            cwd: self.workdir.clone(),
            timeout: self.timeout.and_then(millis),
            ..RunCommand::default()
        }
    }

    #[cfg(test)]
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Running {
    events: Events,
    started: Instant,
    limit: Option<Duration>,
}

impl Running {
    /// What execd calls it, once it said so.
    pub(crate) fn id(&self) -> Option<&str> {
        self.events.id()
    }

    /// Copies what the command writes until it ends; returns the exit code that stands for its
    /// end. Dropping this future loses nothing but the wait.
    pub(crate) async fn follow(&mut self, output: &mut Output<'_>) -> Result<u8, Failure> {
        let mut outcome = None;
        while let Some(event) = self.events.next().await? {
            write(&event, output)?;
            outcome = Outcome::of(&event).or(outcome);
        }
        let never = || Outcome::NotStarted("it was never reported".to_owned());
        let outcome = outcome.unwrap_or_else(never);
        match &outcome {
            Outcome::Killed(_) if self.limit.is_some_and(|l| self.started.elapsed() >= l) => {
                output.say("the time limit ended the command");
                return Ok(ending::TIMED_OUT);
            }
            Outcome::NotStarted(reason) => {
                output.say(&format!("the command did not start: {reason}"));
            }
            Outcome::Killed(_) | Outcome::Exited(_) => {}
        }
        Ok(ending::exit_code(&outcome))
    }
}

fn write(event: &Event, output: &mut Output<'_>) -> Result<(), Failure> {
    match (event.kind, &event.text) {
        (EventKind::Stdout, Some(text)) => output.data(output_line(text).as_bytes()),
        (EventKind::Stderr, Some(text)) => output.error_data(output_line(text).as_bytes()),
        _ => Ok(()),
    }
}
