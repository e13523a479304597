//! Sandboxes that nobody uses.

use std::{sync::Arc, time::Duration};

use osb_core::{Goal, IdleAction, LastUse, Phase, Reason, Status};
use tokio::time::Instant;

use super::{
    Shared,
    driver::{Driver, Records, StepResult},
};
use crate::{execd::Execd, record::Record};

/// How often to ask whether what was at work is done. Until then the sandbox counts as used, so it
/// is idle this much too late at most.
const LOOK: Duration = Duration::from_mins(1);
/// How long execd may take to say what runs. A sandbox that says nothing is left alone.
const SAID_WITHIN: Duration = Duration::from_secs(5);

impl Driver {
    /// Nobody has used the sandbox for as long as its rule says. Does what the rule says, unless
    /// something is at work or somebody comes.
    pub(super) async fn rest(&mut self, records: &mut Records) -> StepResult {
        let record = Arc::clone(&records.borrow());
        let (Some(rule), quiet @ LastUse::At(_)) = (record.desired.idle, record.uses.last()) else {
            return Ok(());
        };
        self.look(&record, records).await?;
        if self.at_work {
            return Ok(());
        }
        let now = self.shared.clock.now();
        self.write(move |record| {
            if record.uses.last() != quiet || record.desired.goal != Goal::Running {
                return;
            }
            match rule.action {
                IdleAction::Pause => record.desired.goal = Goal::Asleep,
                IdleAction::Remove => {
                    record.desired.goal = Goal::Removed;
                    record.desired.status = Status {
                        phase: Phase::Stopping,
                        reason: Reason::Idle,
                        message: format!("nobody used the sandbox for {} seconds", rule.seconds),
                        since: now,
                    };
                }
            }
        })
        .await
    }

    /// Asks whether something is at work in the sandbox. If so, it is in use.
    pub(super) async fn look(&mut self, record: &Record, records: &mut Records) -> StepResult {
        self.at_work = false;
        if record.uses.last() != LastUse::Now {
            let shared = Arc::clone(&self.shared);
            self.at_work = self.unless_unwanted(records, is_at_work(&shared, record)).await?;
        }
        if self.at_work {
            record.uses.note(self.shared.clock.now());
        }
        Ok(())
    }

    /// When to ask again, if the last answer was that something is at work.
    pub(super) fn next_look(&self, record: &Record) -> Option<Instant> {
        let matters = record.desired.goal == Goal::Running && record.phase() == Phase::Running;
        (self.at_work && matters).then(|| Instant::now() + LOOK)
    }
}

async fn is_at_work(shared: &Shared, record: &Record) -> bool {
    let (sandbox, token) = (record.id(), &record.desired.spec.token);
    let execd = Execd { gateway: &shared.gateway, sandbox, token };
    match tokio::time::timeout(SAID_WITHIN, execd.work()).await {
        Ok(Ok(running)) => running > 0,
        Ok(Err(error)) => {
            tracing::debug!(%error, "execd does not say what is at work");
            true
        }
        Err(_) => true,
    }
}
