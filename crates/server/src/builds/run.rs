//! `RUN`: a sandbox of its own for each step.

use std::time::Duration;

use osb_api::execd::RunCommand;
use osb_build::{Changes, Ended, Output, RunStep, Stream, WorkError};
use osb_core::{Phase, Written};
use osb_image::Image;
use osb_sys::userns::IdBase;

use super::{
    lender::{Lender, refused},
    mounts::Mounts,
    refusals,
};
use crate::{
    borrowed::Borrowed,
    execd::{Execd, Outcome},
};

/// How long a step may take, and its sandbox to start.
const WITHIN: Duration = Duration::from_hours(6);
const START_WITHIN: Duration = Duration::from_mins(2);
/// The exit code of a program that is not there, and of one that was killed.
const NOT_FOUND: i32 = 127;
const KILLED: i32 = 128 + 9;

impl Lender<'_> {
    pub(super) async fn step(
        &self,
        on: &Image,
        step: &RunStep,
        output: &dyn Output,
    ) -> Result<Ended, WorkError> {
        let reconciler = &self.app.reconciler;
        let power = reconciler.builds().ok_or_else(|| {
            WorkError::Refused("the runtime of this server runs no steps of builds".to_owned())
        })?;
        let mounts = Mounts::of(self.builds, step)?;
        let mut record = self.record(on, step)?;
        record.desired.spec.volumes = mounts.volumes;
        let now = self.app.clock.now();
        record.desired.expires_at = now.checked_add(2 * WITHIN).ok();
        let (id, trusted) = (record.id(), record.desired.spec.trusted());
        let token = record.desired.spec.token.clone();
        power.lend(id, &mounts.secrets);
        let borrowed = Borrowed::new(id, reconciler);
        let made = reconciler.create(record, None, START_WITHIN).wait().await;
        let doing = "cannot make the sandbox of a step";
        let made = made.map_err(|error| refused(doing, error.into()))?;
        if made.phase() != Phase::Running {
            let why = made.desired.status.message.clone();
            return Err(WorkError::failed(doing, why));
        }
        drop(mounts.secrets);
        let execd = Execd { gateway: &self.app.gateway, sandbox: id, token: &token };
        execd.dress(&mounts.new).await?;
        let outcome = execd.run(&command(step)?, WITHIN, output).await?;
        let notes = || refusals::notes(&reconciler.egress().recent(id));
        let notes = if outcome == Outcome::Code(0) { Vec::new() } else { notes() };
        let written = power.take(id).await;
        let written =
            written.map_err(|error| WorkError::failed("cannot take what a step wrote", error))?;
        let lacked_memory = written.oom_kills > 0;
        let too_little = "it needed more memory than the step may have: give the build more with \
                          resourceLimits.memory";
        Ok(match outcome {
            Outcome::Code(0) => Ended::Well(changes(written, trusted, borrowed)),
            Outcome::Code(KILLED) | Outcome::Signal(_) | Outcome::Lost if lacked_memory => {
                Ended::Killed(too_little.to_owned())
            }
            Outcome::Code(code) => Ended::Failed { code, notes },
            Outcome::Signal(how) => Ended::Killed(how),
            Outcome::NotStarted(why) => {
                output.line(Stream::Err, &why);
                Ended::Failed { code: NOT_FOUND, notes }
            }
            Outcome::Lost => Ended::Killed("the sandbox ended in the middle of it".to_owned()),
            Outcome::TooLate => {
                Ended::Killed(format!("it took longer than {} hours", WITHIN.as_secs() / 3600))
            }
        })
    }
}

fn changes(written: Written, authorities: Option<String>, borrowed: Borrowed) -> Changes {
    let Written { files, owners, hold, .. } = written;
    // First the files are let go, and then the sandbox goes.
    let until: Box<dyn std::any::Any + Send + Sync> = Box::new((hold, borrowed));
    Changes { files, owners: IdBase(owners), authorities, until: Some(until) }
}

fn command(step: &RunStep) -> Result<RunCommand, WorkError> {
    let mut envs: std::collections::BTreeMap<String, String> =
        step.environment.iter().cloned().collect();
    for (name, secret) in &step.secret_environment {
        let text = String::from_utf8(secret.reveal().to_vec());
        let text = text.map_err(|_| {
            WorkError::Refused(format!("the secret for {name} is no text, which a variable is"))
        })?;
        envs.insert(name.clone(), text);
    }
    // execd would say that it is root's.
    let name = step.account.name.clone().unwrap_or_else(|| step.account.user.to_string());
    envs.entry("USER".to_owned()).or_insert(name);
    Ok(RunCommand {
        argv: Some(step.arguments.clone()),
        cwd: Some(step.workdir.clone()),
        uid: Some(step.account.user),
        gid: Some(step.account.group),
        timeout: i64::try_from(WITHIN.as_millis()).ok(),
        envs,
        ..RunCommand::default()
    })
}
