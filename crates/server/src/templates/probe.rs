//! Whether a sandbox is ready.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use osb_api::execd::RunCommand;
use osb_build::{Output, Stream};
use osb_core::Chain;
use tokio::time::Instant;

use crate::{
    admission::Probe,
    app::App,
    execd::{Execd, Outcome},
    record::Record,
};

/// How long it is tried, how long one try may take, and how long it is waited in between.
const WITHIN: Duration = Duration::from_mins(10);
const TRY_WITHIN: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(250);
/// How much longer execd may take to say that a try took too long.
const GRACE: Duration = Duration::from_secs(5);
/// How much of what a command said is told again.
const MOST_SAID: usize = 256;

/// Tries until the probe succeeds, or says why it does not.
pub(super) async fn succeed(app: &App, sandbox: &Record, probe: &Probe) -> Result<(), String> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let Err(why) = attempt(app, sandbox, probe).await else { return Ok(()) };
        if Instant::now() >= deadline {
            let minutes = WITHIN.as_secs() / 60;
            return Err(format!("the probe did not succeed within {minutes} minutes: {why}"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn attempt(app: &App, sandbox: &Record, probe: &Probe) -> Result<(), String> {
    let id = sandbox.id();
    match probe {
        Probe::Port(port) => {
            let is_ready = app.reconciler.takes_connections(id, *port, TRY_WITHIN).await;
            is_ready
                .then_some(())
                .ok_or_else(|| format!("nothing takes connections on port {port}"))
        }
        Probe::Command(text) => {
            let token = &sandbox.desired.spec.token;
            let execd = Execd { gateway: &app.gateway, sandbox: id, token };
            let command = RunCommand {
                command: Some(text.clone()),
                timeout: i64::try_from(TRY_WITHIN.as_millis()).ok(),
                ..RunCommand::default()
            };
            let last = LastLine::default();
            match execd.run(&command, TRY_WITHIN + GRACE, &last).await {
                Ok(Outcome::Code(0)) => Ok(()),
                Ok(outcome) => Err(last.beside(&how(outcome))),
                Err(error) => Err(Chain(&error).to_string()),
            }
        }
    }
}

fn how(outcome: Outcome) -> String {
    match outcome {
        Outcome::Code(code) => format!("it ended with code {code}"),
        Outcome::Signal(how) | Outcome::NotStarted(how) => how,
        Outcome::Lost => "execd did not tell how it ended".to_owned(),
        Outcome::TooLate => format!("it took longer than {} seconds", TRY_WITHIN.as_secs()),
    }
}

/// The last that a command said.
#[derive(Debug, Default)]
struct LastLine(Mutex<String>);

impl LastLine {
    fn beside(self, how: &str) -> String {
        let said = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        if said.is_empty() { how.to_owned() } else { format!("{how}, saying {said:?}") }
    }
}

impl Output for LastLine {
    fn line(&self, _: Stream, line: &str) {
        if !line.trim().is_empty() {
            let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *last = line.chars().take(MOST_SAID).collect();
        }
    }
}
