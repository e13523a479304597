use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use osb_api::SandboxId;
use osb_core::{
    Chain, Goal, IdleAction, ObservedState, Phase, Reason, RuntimeError, Status, Step, plan,
};
use osb_registry::Login;
use tokio::{sync::watch, time::Instant};
use tracing::Instrument;

use super::{Birth, Shared, Sighting, birth::NotCreated, sighting::Busy};
use crate::{
    history::{Attempt, Happening},
    record::Record,
    store::{StoreError, Unchanged},
};

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LAST_BACKOFF: Duration = Duration::from_secs(30);
/// A driver looks again after this long even if nothing happened: the clock may have been set.
const LONGEST_SLEEP: Duration = Duration::from_hours(1);

/// Brings one sandbox to what was asked for, and keeps it there until it is gone.
pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SandboxId,
    sighting: Arc<watch::Sender<Sighting>>,
    /// The creator that waits for an answer.
    pub(super) birth: Option<Birth>,
    /// What the creator gave for the registry of the image. It is written down nowhere.
    pub(super) login: Option<Login>,
    /// Whether an earlier server was asked for the sandbox.
    pub(super) is_adopted: bool,
    /// Why that creator will get no sandbox, once everything is cleaned up.
    stillborn: Option<NotCreated>,
    failures: u32,
    /// Whether somebody answers for what the sandbox sends.
    attended: bool,
    /// Whether something was at work in the sandbox, which nobody else used, when it was last asked.
    pub(super) at_work: bool,
}

/// Why the rest of a plan is not carried out.
pub(super) enum Setback {
    /// The record is deleted; the driver's work is over.
    Forgotten,
    /// The plan is outdated.
    Outdated,
    /// The step failed and must be tried again, but not at once.
    Failed,
    /// So did this one, for nothing can be written down.
    Unwritten(StoreError),
}

pub(super) type StepResult = Result<(), Setback>;
pub(super) type Records = watch::Receiver<Arc<Record>>;

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, id: SandboxId, first: Sighting) -> Self {
        let sighting = shared.sightings.add(id, first);
        Self {
            shared,
            id,
            sighting,
            birth: None,
            login: None,
            is_adopted: false,
            stillborn: None,
            failures: 0,
            attended: false,
            at_work: false,
        }
    }

    /// Drives a new sandbox. Nothing is written down before it is up: after a crash until then it is
    /// one that nobody knows, and is removed.
    pub(super) async fn bear(mut self, record: Record, login: Option<Login>, birth: Birth) {
        let span = tracing::info_span!("sandbox", sandbox_id = %self.id);
        async {
            if birth.is_abandoned() {
                self.shared.sightings.remove(self.id);
                return;
            }
            self.shared.store.introduce(record);
            (self.birth, self.login) = (Some(birth), login);
            self.drive().await;
        }
        .instrument(span)
        .await;
    }

    /// Drives a sandbox that an earlier server made.
    pub(super) async fn adopt(mut self) {
        let span = tracing::info_span!("sandbox", sandbox_id = %self.id);
        self.is_adopted = true;
        self.drive().instrument(span).await;
    }

    async fn drive(&mut self) {
        if let Some(mut records) = self.shared.store.index().subscribe(self.id) {
            let mut sightings = self.sighting.subscribe();
            while !self.shared.stop.is_cancelled() {
                let record = Arc::clone(&records.borrow_and_update());
                let observed = sightings.borrow_and_update().observed(self.id);
                let (used, now) = (record.uses.last(), self.shared.clock.now());
                let steps = plan(&record.desired, observed.as_ref(), used, now);
                let up = observed.is_some_and(|seen| is_up(&seen.state));
                if !up {
                    self.leave();
                }
                let result = if !steps.is_empty() {
                    self.apply_all(steps, &mut records).await
                } else if up && !self.attended {
                    self.attend().await
                } else {
                    self.idle(&record, &mut records, &mut sightings).await
                };
                match result {
                    Ok(()) | Err(Setback::Outdated) => {}
                    Err(Setback::Unwritten(error)) if self.birth.is_some() => {
                        self.take_back(error).await;
                        break;
                    }
                    Err(Setback::Failed | Setback::Unwritten(_)) => {
                        self.back_off(&record, &mut records).await;
                    }
                    Err(Setback::Forgotten) => break,
                }
            }
        }
        self.leave();
        self.shared.sightings.remove(self.id);
        self.answer_stillborn();
    }

    async fn apply_all(&mut self, steps: Vec<Step>, records: &mut Records) -> StepResult {
        for step in steps {
            let span = tracing::debug_span!("step", step = step_name(&step));
            self.apply(step, records).instrument(span).await?;
            self.failures = 0;
        }
        Ok(())
    }

    async fn apply(&mut self, step: Step, records: &mut Records) -> StepResult {
        match step {
            Step::Record(status) => self.note(status).await,
            Step::Ensure => self.ensure(records).await,
            Step::Pause => self.pause().await,
            Step::Resume => self.resume().await,
            Step::Rest => self.rest(records).await,
            Step::Wake => self.write(wake).await,
            Step::Remove => self.remove().await,
            Step::Forget => {
                // Earlier than the record goes: whoever is killed in between does both again.
                self.shared.outbound.audit.finish(self.id);
                self.shared.store.forget(self.id).await.map_err(unwritten)?;
                self.shared.forget_vault(self.id);
                tracing::info!("the sandbox is gone");
                Err(Setback::Forgotten)
            }
        }
    }

    pub(super) async fn note(&self, status: Status) -> StepResult {
        let Status { phase, reason, message, .. } = &status;
        tracing::info!(phase = %phase, reason = reason.as_str(), "{message}");
        let kills = self.sighting.borrow().kills();
        let now = self.shared.clock.now();
        self.write(move |record| {
            // The creator is about to see this.
            let is_told = !matches!(status.phase, Phase::Pending | Phase::Stopping);
            record.announced |= is_told && record.is_clients();
            if kills > record.history.kills() {
                record.tell(now, Happening::OutOfMemory { kills });
            }
            if status.phase == record.phase() && status.since == record.desired.status.since {
                // It goes on as before, and what happened meanwhile is told.
                record.desired.status = status;
            } else {
                record.become_status(status, now);
            }
        })
        .await
    }

    async fn ensure(&mut self, records: &mut Records) -> StepResult {
        // Held until the runtime has it in use.
        let _image = self.find_image(records).await?;
        let record = Arc::clone(&records.borrow());
        let shared = Arc::clone(&self.shared);
        let busy = Busy::new(&self.sighting);
        // Whatever becomes of the call, there is something to remove now.
        busy.becomes(Some(ObservedState::Starting));
        let ensure = shared.runtime.ensure(&record.desired.spec);
        let result = self.unless_unwanted(records, ensure).await?;
        match result {
            Ok(observed) => {
                busy.becomes(Some(observed.state));
                Ok(())
            }
            Err(error) if self.birth.is_some() => self.give_up(NotCreated::Runtime(error)).await,
            Err(error @ RuntimeError::Busy(_)) => {
                tracing::warn!(error = %Chain(&error), "the sandbox has to wait");
                busy.becomes(None);
                Err(Setback::Failed)
            }
            Err(error) => {
                tracing::error!(error = %Chain(&error), "the sandbox could not be started");
                self.note(Status {
                    phase: Phase::Failed,
                    reason: Reason::StartFailed,
                    message: format!("the sandbox could not be started: {error}"),
                    since: self.shared.clock.now(),
                })
                .await?;
                self.remove().await
            }
        }
    }

    /// Waits for something that takes long, as long as the sandbox is wanted. A creator whose
    /// patience ends before that is answered meanwhile.
    pub(super) async fn unless_unwanted<T>(
        &mut self,
        records: &mut Records,
        work: impl Future<Output = T>,
    ) -> Result<T, Setback> {
        let stop = self.shared.stop.clone();
        tokio::pin!(work);
        loop {
            let deadline = self.birth.as_ref().map(Birth::deadline);
            let record = Arc::clone(&records.borrow_and_update());
            if record.desired.goal == Goal::Removed || self.is_expired(&record) {
                return Err(Setback::Outdated);
            }
            let expiry = self.expiry(&record);
            tokio::select! {
                done = &mut work => return Ok(done),
                changed = records.changed() => changed.map_err(|_| Setback::Outdated)?,
                () = until(expiry) => {}
                () = abandoned(self.birth.as_mut()) => {
                    self.withdraw().await?;
                    return Err(Setback::Outdated);
                }
                () = stop.cancelled() => return Err(Setback::Outdated),
                () = until(deadline) => self.announce_pending().await?,
            }
        }
    }

    /// The creator will get no sandbox, and is told once everything is cleaned up.
    pub(super) async fn give_up(&mut self, why: NotCreated) -> StepResult {
        self.stillborn = Some(why);
        self.write(remove_it).await
    }

    /// Lets what the sandbox sends be answered.
    async fn attend(&mut self) -> StepResult {
        match self.shared.attend(self.id).await {
            Ok(()) => {
                self.attended = true;
                self.failures = 0;
                Ok(())
            }
            Err(error) if self.birth.is_some() => self.give_up(NotCreated::Runtime(error)).await,
            Err(error) => {
                tracing::error!(
                    error = %Chain(&error),
                    "nobody answers for what the sandbox sends; it is tried again"
                );
                Err(Setback::Failed)
            }
        }
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.attended) {
            self.shared.outbound.leave(self.id);
        }
    }

    async fn pause(&self) -> StepResult {
        let busy = Busy::new(&self.sighting);
        let result = match self.shared.runtime.pause() {
            Some(power) => power.pause(self.id).await,
            None => Err(RuntimeError::Invalid("the runtime cannot pause".to_owned())),
        };
        match result {
            Ok(()) => {
                busy.becomes(Some(ObservedState::Paused));
                Ok(())
            }
            Err(error) => {
                tracing::error!(error = %Chain(&error), "the sandbox could not be paused");
                self.stay(&busy, &error, Attempt::Pause, Goal::Running).await
            }
        }
    }

    async fn resume(&self) -> StepResult {
        let busy = Busy::new(&self.sighting);
        let result = match self.shared.runtime.pause() {
            Some(power) => power.resume(self.id).await,
            None => Err(RuntimeError::Invalid("the runtime cannot resume".to_owned())),
        };
        match result {
            Ok(()) => {
                busy.becomes(Some(ObservedState::Running));
                Ok(())
            }
            Err(error) => {
                tracing::error!(error = %Chain(&error), "the sandbox could not be resumed");
                self.stay(&busy, &error, Attempt::Resume, Goal::Paused).await?;
                // Somebody wanted it to run: whoever uses it next may try again.
                self.write(doze).await
            }
        }
    }

    /// Gives up a change: what is becomes what is wanted.
    async fn stay(
        &self,
        busy: &Busy,
        error: &RuntimeError,
        attempt: Attempt,
        goal: Goal,
    ) -> StepResult {
        if matches!(error, RuntimeError::NotFound(_)) {
            busy.becomes(None);
        }
        let (now, message) = (self.shared.clock.now(), error.to_string());
        self.write(move |record| {
            record.tell(now, Happening::Failed { attempt, message });
            if record.desired.goal != Goal::Removed {
                record.desired.goal = goal;
            }
        })
        .await
    }

    async fn remove(&mut self) -> StepResult {
        self.leave();
        let busy = Busy::new(&self.sighting);
        if let Err(error) = self.shared.runtime.remove(self.id).await {
            tracing::error!(
                error = %Chain(&error),
                "the sandbox could not be removed; it is tried again"
            );
            self.answer_stillborn();
            let (now, message) = (self.shared.clock.now(), error.to_string());
            self.write(move |record| {
                record.failed_removals += 1;
                record.tell(now, Happening::Failed { attempt: Attempt::Remove, message });
            })
            .await?;
            return Err(Setback::Failed);
        }
        busy.becomes(None);
        Ok(())
    }

    /// With nothing left to do: tells the creator how it went, then waits for something to happen.
    async fn idle(
        &mut self,
        record: &Arc<Record>,
        records: &mut Records,
        sightings: &mut watch::Receiver<Sighting>,
    ) -> StepResult {
        if self.birth.is_some() && record.phase() == Phase::Failed {
            let how = record.desired.status.message.clone();
            return self.give_up(NotCreated::Ended(how)).await;
        }
        if self.birth.is_some() && record.phase() != Phase::Pending {
            self.announce(Arc::clone(record)).await?;
        }
        let (expiry, idle) = (self.expiry(record), self.idle_at(record));
        let look = self.next_look(record);
        let deadline = self.birth.as_ref().map(Birth::deadline);
        let stop = self.shared.stop.clone();
        tokio::select! {
            _ = records.changed() => Ok(()),
            _ = sightings.changed() => Ok(()),
            () = until(expiry) => Ok(()),
            () = until(idle) => Ok(()),
            () = until(look) => self.look(record, records).await,
            () = stop.cancelled() => Ok(()),
            () = until(deadline) => self.announce_pending().await,
            () = abandoned(self.birth.as_mut()) => self.withdraw().await,
        }
    }

    /// Answers the creator, or takes the sandbox back if it went away.
    async fn announce(&mut self, record: Arc<Record>) -> StepResult {
        let answered = self.birth.take().is_none_or(|birth| birth.answer(Ok(record)));
        if answered { Ok(()) } else { self.withdraw().await }
    }

    async fn announce_pending(&mut self) -> StepResult {
        self.write(|record| record.announced = record.is_clients()).await?;
        match self.shared.store.index().get(self.id) {
            Some(record) => self.announce(record).await,
            None => Err(Setback::Forgotten),
        }
    }

    async fn withdraw(&mut self) -> StepResult {
        tracing::info!("the client went away before it had an answer: the sandbox is removed");
        self.birth = None;
        self.write(remove_it).await?;
        Err(Setback::Outdated)
    }

    /// Removes a new sandbox that cannot be written down: the next server would not know it.
    async fn take_back(&mut self, error: StoreError) {
        if let Err(error) = self.shared.runtime.remove(self.id).await {
            tracing::error!(
                error = %Chain(&error),
                "the sandbox could not be taken back; it is tried again"
            );
        }
        self.shared.outbound.audit.finish(self.id);
        // A store that is closed belongs to a server that is ending.
        self.shared.store.retract(self.id).await.ok();
        self.stillborn.get_or_insert(NotCreated::Store(error));
    }

    fn answer_stillborn(&mut self) {
        if let Some(birth) = self.birth.take() {
            birth.answer(Err(self.stillborn.take().unwrap_or(NotCreated::Withdrawn)));
        }
    }

    /// Waits a while after a failure, unless a client asks again.
    async fn back_off(&mut self, record: &Record, records: &mut Records) {
        let pause = FIRST_BACKOFF.saturating_mul(1 << self.failures.min(16)).min(LAST_BACKOFF);
        self.failures += 1;
        let asked = record.requests;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = records.wait_for(|record| record.requests != asked) => {}
            () = self.shared.stop.cancelled() => {}
        }
    }

    fn is_expired(&self, record: &Record) -> bool {
        record.desired.expires_at.is_some_and(|at| at <= self.shared.clock.now())
    }

    fn expiry(&self, record: &Record) -> Option<Instant> {
        Some(self.instant(record.desired.expires_at?))
    }

    /// When the plan changes if nobody uses the sandbox until then.
    fn idle_at(&self, record: &Record) -> Option<Instant> {
        let idle = record.desired.idle_at(record.uses.last(), self.shared.clock.now());
        idle.map(|at| self.instant(at))
    }

    fn instant(&self, moment: Timestamp) -> Instant {
        let left = moment.duration_since(self.shared.clock.now());
        let left = Duration::try_from(left).unwrap_or_default();
        Instant::now() + left.min(LONGEST_SLEEP)
    }

    pub(super) async fn write(
        &self,
        change: impl FnOnce(&mut Record) + Send + 'static,
    ) -> StepResult {
        let change = move |record: &mut Record| {
            change(record);
            Ok::<(), std::convert::Infallible>(())
        };
        match self.shared.store.update(self.id, change).await {
            Ok(_) => Ok(()),
            Err(Unchanged::Missing) => Err(Setback::Forgotten),
            Err(Unchanged::Refused(never)) => match never {},
            Err(Unchanged::Store(error)) => Err(unwritten(error)),
        }
    }
}

/// Whether there is something that could send.
fn is_up(state: &ObservedState) -> bool {
    match state {
        ObservedState::Running | ObservedState::Paused => true,
        ObservedState::Starting | ObservedState::Exited(_) | ObservedState::Gone => false,
    }
}

fn unwritten(error: StoreError) -> Setback {
    tracing::error!(error = %Chain(&error), "the store failed");
    Setback::Unwritten(error)
}

/// One that sleeps when nobody uses it sleeps, rather than being paused for good.
fn doze(record: &mut Record) {
    let sleeps = record.desired.idle.is_some_and(|rule| rule.action == IdleAction::Pause);
    if sleeps && record.desired.goal == Goal::Paused {
        record.desired.goal = Goal::Asleep;
    }
}

fn wake(record: &mut Record) {
    if record.desired.goal == Goal::Asleep {
        record.desired.goal = Goal::Running;
    }
}

fn remove_it(record: &mut Record) {
    record.desired.goal = Goal::Removed;
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn abandoned(birth: Option<&mut Birth>) {
    match birth {
        Some(birth) => birth.abandoned().await,
        None => std::future::pending().await,
    }
}

fn step_name(step: &Step) -> &'static str {
    match step {
        Step::Record(_) => "record",
        Step::Ensure => "ensure",
        Step::Pause => "pause",
        Step::Resume => "resume",
        Step::Rest => "rest",
        Step::Wake => "wake",
        Step::Remove => "remove",
        Step::Forget => "forget",
    }
}
