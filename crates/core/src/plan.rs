//! What to do next, as a pure function.

use jiff::Timestamp;

use crate::{Exit, Observed, ObservedState, Phase, Reason, SandboxSpec, Status};

/// What somebody asked for, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    pub spec: SandboxSpec,
    pub goal: Goal,
    /// When the sandbox ends by itself; `None` is never.
    pub expires_at: Option<Timestamp>,
    /// What becomes of it when nobody uses it; `None` is nothing.
    pub idle: Option<IdleRule>,
    /// The last status that was recorded.
    pub status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    Running,
    Paused,
    /// Paused until somebody uses it.
    Asleep,
    Removed,
}

/// For how long nobody may use a sandbox, and what becomes of it then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleRule {
    pub seconds: u32,
    pub action: IdleAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleAction {
    Pause,
    Remove,
}

/// When somebody used a sandbox last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastUse {
    /// Somebody does.
    Now,
    At(Timestamp),
}

impl Desired {
    /// The moment from which a sandbox that runs counts as idle unless somebody uses it before.
    pub fn idle_at(&self, last: LastUse, now: Timestamp) -> Option<Timestamp> {
        let rule = self.idle?;
        if self.goal != Goal::Running || self.status.phase != Phase::Running {
            return None;
        }
        let last = match last {
            LastUse::Now => now,
            // Nobody could use it before it ran.
            LastUse::At(last) => last.max(self.status.since),
        };
        let at = last.checked_add(jiff::SignedDuration::from_secs(rule.seconds.into()));
        Some(at.unwrap_or(Timestamp::MAX))
    }
}

/// One thing to do. After the steps are done the world is observed and planned again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write down this status.
    Record(Status),
    /// Have the runtime make the sandbox.
    Ensure,
    Pause,
    Resume,
    /// Nobody has used it for as long as its rule says: unless something is at work in it, do what
    /// the rule says.
    Rest,
    /// Somebody uses it although it was to be paused until then: let it run.
    Wake,
    /// Have the runtime remove the sandbox and everything made for it.
    Remove,
    /// Delete the record: nothing is left of the sandbox.
    Forget,
}

/// The steps that bring `observed` towards `desired`; none if all is as it should be.
///
/// `observed` is `None` when the runtime has nothing of this sandbox.
pub fn plan(
    desired: &Desired,
    observed: Option<&Observed>,
    last_use: LastUse,
    now: Timestamp,
) -> Vec<Step> {
    let state = observed.map(|o| &o.state).filter(|state| **state != ObservedState::Gone);
    let record = |phase, reason, message: &str| {
        Step::Record(Status { phase, reason, message: message.to_owned(), since: now })
    };
    let phase = desired.status.phase;

    let expired = desired.expires_at.is_some_and(|at| at <= now);
    // There is no way back from stopping: half of the sandbox may be gone already, so a renewal
    // that comes after it began comes too late.
    if desired.goal == Goal::Removed || expired || phase == Phase::Stopping {
        let (reason, message) = if desired.goal == Goal::Removed {
            (Reason::UserRequest, "the sandbox is being removed")
        } else {
            (Reason::Expired, "the sandbox has reached its expiry")
        };
        return match (state, phase) {
            (None, _) => vec![Step::Forget],
            (Some(_), Phase::Stopping) => vec![Step::Remove],
            (Some(_), _) => vec![record(Phase::Stopping, reason, message), Step::Remove],
        };
    }
    if phase.is_over() {
        return Vec::new();
    }

    match (state, desired.goal) {
        (None, _) if phase == Phase::Pending => vec![Step::Ensure],
        (None, _) => vec![record(
            Phase::Failed,
            Reason::Vanished,
            "the sandbox ended and left no trace, as after a reboot of the host",
        )],
        (Some(ObservedState::Exited(exit)), _) => vec![Step::Record(ended(*exit, now))],
        (Some(ObservedState::Starting | ObservedState::Gone), _) => Vec::new(),
        (Some(ObservedState::Running), Goal::Asleep) if last_use == LastUse::Now => {
            vec![Step::Wake]
        }
        (Some(ObservedState::Running), Goal::Paused | Goal::Asleep) => match phase {
            Phase::Pausing => vec![Step::Pause],
            Phase::Pending
            | Phase::Running
            | Phase::Paused
            | Phase::Resuming
            | Phase::Stopping
            | Phase::Terminated
            | Phase::Failed => {
                let reason = match desired.goal {
                    Goal::Asleep => Reason::Idle,
                    Goal::Running | Goal::Paused | Goal::Removed => Reason::UserRequest,
                };
                vec![record(Phase::Pausing, reason, "pausing"), Step::Pause]
            }
        },
        (Some(ObservedState::Paused), Goal::Running) => match phase {
            Phase::Resuming => vec![Step::Resume],
            Phase::Pending
            | Phase::Running
            | Phase::Pausing
            | Phase::Paused
            | Phase::Stopping
            | Phase::Terminated
            | Phase::Failed => {
                vec![record(Phase::Resuming, Reason::UserRequest, "resuming"), Step::Resume]
            }
        },
        (Some(ObservedState::Running), _) => {
            let message = running(observed.map_or(0, |observed| observed.oom_kills));
            let status = &desired.status;
            if phase == Phase::Running && status.message == message {
                let is_idle = desired.idle_at(last_use, now).is_some_and(|at| at <= now);
                return if is_idle { vec![Step::Rest] } else { Vec::new() };
            }
            // What happened within a phase does not begin it anew.
            let since = if phase == Phase::Running { status.since } else { now };
            let reason = Reason::ContainerRunning;
            vec![Step::Record(Status { phase: Phase::Running, reason, message, since })]
        }
        (Some(ObservedState::Paused), _) if phase == Phase::Paused => Vec::new(),
        (Some(ObservedState::Paused), Goal::Asleep) => vec![record(
            Phase::Paused,
            Reason::Idle,
            "the sandbox was not used and is paused: the next request to it wakes it",
        )],
        (Some(ObservedState::Paused), _) => {
            vec![record(Phase::Paused, Reason::ContainerPaused, "the sandbox is paused")]
        }
    }
}

fn running(oom_kills: u64) -> String {
    match oom_kills {
        0 => "the sandbox is running".to_owned(),
        1 => "the sandbox is running; one process was ended for lack of memory".to_owned(),
        many => format!("the sandbox is running; {many} processes were ended for lack of memory"),
    }
}

fn ended(exit: Exit, now: Timestamp) -> Status {
    let (phase, reason, message) = match exit {
        Exit::Code(0) => (
            Phase::Terminated,
            Reason::ContainerExited,
            "the entrypoint ended with exit code 0".to_owned(),
        ),
        Exit::Code(code) => (
            Phase::Failed,
            Reason::ContainerExitedError,
            format!("the entrypoint ended with exit code {code}"),
        ),
        Exit::Signal(signal) => (
            Phase::Failed,
            Reason::ContainerExitedError,
            format!("the sandbox was ended by signal {signal}"),
        ),
        Exit::OutOfMemory => (
            Phase::Failed,
            Reason::OutOfMemory,
            "the sandbox was ended because it used more memory than its limit".to_owned(),
        ),
        Exit::Unknown => (
            Phase::Failed,
            Reason::Vanished,
            "the sandbox ended while the server was not watching".to_owned(),
        ),
    };
    Status { phase, reason, message, since: now }
}

#[cfg(test)]
mod tests {
    use osb_api::SandboxId;

    use super::*;
    use crate::{ImageName, Token};

    /// Seconds since the epoch at which all of these take place.
    const NOW: i64 = 1_000_000;

    fn check(phase: Phase, goal: Goal, state: Option<ObservedState>, steps: &[&str]) {
        check_expiring(phase, goal, None, state, steps);
    }

    #[track_caller]
    fn check_expiring(
        phase: Phase,
        goal: Goal,
        expires_in: Option<i64>,
        state: Option<ObservedState>,
        steps: &[&str],
    ) {
        let now = at(NOW);
        let spec = SandboxSpec::new(
            SandboxId::random(),
            ImageName::new("host"),
            vec!["sleep".to_owned()],
            Token::new("t"),
        );
        let observed = state.map(|state| Observed::new(spec.id, state));
        let status = Status {
            phase,
            reason: Reason::UserRequest,
            message: "the sandbox is running".to_owned(),
            since: at(NOW - 60),
        };
        let expires_at = expires_in.map(|seconds| at(NOW + seconds));
        let desired = Desired { spec, goal, expires_at, idle: None, status };
        let planned = plan(&desired, observed.as_ref(), LastUse::Now, now);
        let planned: Vec<String> = planned.iter().map(|step| shown(step, now)).collect();
        assert_eq!(planned, steps, "{phase}, {goal:?}, {observed:?}");
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn shown(step: &Step, now: Timestamp) -> String {
        match step {
            Step::Record(status) => {
                assert_eq!(status.since, now);
                assert!(!status.message.is_empty());
                format!("{} {}", status.phase, status.reason.as_str())
            }
            Step::Ensure
            | Step::Pause
            | Step::Resume
            | Step::Rest
            | Step::Wake
            | Step::Remove
            | Step::Forget => {
                format!("{step:?}")
            }
        }
    }

    #[test]
    fn a_new_sandbox_is_made_and_then_runs() {
        check(Phase::Pending, Goal::Running, None, &["Ensure"]);
        check(Phase::Pending, Goal::Running, Some(ObservedState::Gone), &["Ensure"]);
        check(Phase::Pending, Goal::Running, Some(ObservedState::Starting), &[]);
        let running = Some(ObservedState::Running);
        check(Phase::Pending, Goal::Running, running.clone(), &["Running CONTAINER_RUNNING"]);
        check(Phase::Running, Goal::Running, running, &[]);
    }

    #[test]
    fn a_sandbox_pauses_and_resumes() {
        let (running, paused) = (Some(ObservedState::Running), Some(ObservedState::Paused));
        let pausing = &["Pausing USER_REQUEST", "Pause"];
        check(Phase::Running, Goal::Paused, running.clone(), pausing);
        check(Phase::Pausing, Goal::Paused, running.clone(), &["Pause"]);
        check(Phase::Pausing, Goal::Paused, paused.clone(), &["Paused CONTAINER_PAUSED"]);
        check(Phase::Paused, Goal::Paused, paused.clone(), &[]);
        let resuming = &["Resuming USER_REQUEST", "Resume"];
        check(Phase::Paused, Goal::Running, paused.clone(), resuming);
        check(Phase::Resuming, Goal::Running, paused, &["Resume"]);
        check(Phase::Resuming, Goal::Running, running, &["Running CONTAINER_RUNNING"]);
    }

    #[test]
    fn a_change_of_mind_ends_where_the_sandbox_is() {
        let running = Some(ObservedState::Running);
        check(Phase::Pausing, Goal::Running, running, &["Running CONTAINER_RUNNING"]);
        let paused = Some(ObservedState::Paused);
        check(Phase::Resuming, Goal::Paused, paused, &["Paused CONTAINER_PAUSED"]);
    }

    #[test]
    fn the_end_of_an_entrypoint_is_written_down() {
        for (exit, recorded) in [
            (Exit::Code(0), "Terminated CONTAINER_EXITED"),
            (Exit::Code(1), "Failed CONTAINER_EXITED_ERROR"),
            (Exit::Signal(9), "Failed CONTAINER_EXITED_ERROR"),
            (Exit::OutOfMemory, "Failed OUT_OF_MEMORY"),
            (Exit::Unknown, "Failed VANISHED"),
        ] {
            let exited = Some(ObservedState::Exited(exit));
            check(Phase::Running, Goal::Running, exited.clone(), &[recorded]);
            check(Phase::Pending, Goal::Paused, exited.clone(), &[recorded]);
            check(Phase::Failed, Goal::Running, exited, &[]);
        }
    }

    #[test]
    fn lack_of_memory_is_told_and_the_sandbox_runs_on() {
        let spec = SandboxSpec::new(
            SandboxId::random(),
            ImageName::new("host"),
            vec!["sleep".to_owned()],
            Token::new("t"),
        );
        let mut observed = Observed::new(spec.id, ObservedState::Running);
        let since = at(NOW - 60);
        let status = Status {
            phase: Phase::Running,
            reason: Reason::ContainerRunning,
            message: running(0),
            since,
        };
        let mut desired =
            Desired { spec, goal: Goal::Running, expires_at: None, idle: None, status };
        assert_eq!(plan(&desired, Some(&observed), LastUse::Now, at(NOW)), []);
        for (kills, words) in [(1, "one process was"), (3, "3 processes were")] {
            observed.oom_kills = kills;
            let steps = plan(&desired, Some(&observed), LastUse::Now, at(NOW));
            let [Step::Record(status)] = steps.as_slice() else { panic!("{steps:?}") };
            assert!(status.message.contains(words), "{}", status.message);
            assert_eq!((status.phase, status.since), (Phase::Running, since));
            desired.status = status.clone();
            assert_eq!(plan(&desired, Some(&observed), LastUse::Now, at(NOW)), []);
        }
    }

    #[test]
    fn a_sandbox_without_a_trace_has_failed() {
        for phase in [Phase::Running, Phase::Pausing, Phase::Paused, Phase::Resuming] {
            check(phase, Goal::Running, None, &["Failed VANISHED"]);
        }
        check(Phase::Failed, Goal::Running, None, &[]);
    }

    #[test]
    fn removal_ends_in_nothing() {
        let running = Some(ObservedState::Running);
        let removing = &["Stopping USER_REQUEST", "Remove"];
        check(Phase::Running, Goal::Removed, running.clone(), removing);
        check(Phase::Stopping, Goal::Removed, running, &["Remove"]);
        let ended = Some(ObservedState::Exited(Exit::Code(0)));
        check(Phase::Terminated, Goal::Removed, ended, removing);
        for phase in Phase::ALL {
            check(phase, Goal::Removed, None, &["Forget"]);
        }
    }

    #[test]
    fn expiry_removes_a_sandbox_in_the_second_it_comes() {
        let running = Some(ObservedState::Running);
        let removing: &[&str] = &["Stopping EXPIRED", "Remove"];
        for (seconds, steps) in [(1, [].as_slice()), (0, removing), (-1, removing)] {
            let state = running.clone();
            check_expiring(Phase::Running, Goal::Running, Some(seconds), state, steps);
        }
        check_expiring(Phase::Pending, Goal::Running, Some(0), None, &["Forget"]);
    }

    #[test]
    fn a_renewal_after_stopping_began_comes_too_late() {
        let running = Some(ObservedState::Running);
        check_expiring(Phase::Stopping, Goal::Running, Some(60), running, &["Remove"]);
        check_expiring(Phase::Stopping, Goal::Running, Some(60), None, &["Forget"]);
    }

    /// A sandbox that has run for 60 seconds and may be idle for 100.
    fn resting(goal: Goal, phase: Phase) -> Desired {
        let spec = SandboxSpec::new(
            SandboxId::random(),
            ImageName::new("host"),
            vec!["sleep".to_owned()],
            Token::new("t"),
        );
        let status = Status {
            phase,
            reason: Reason::ContainerRunning,
            message: running(0),
            since: at(NOW - 60),
        };
        let idle = Some(IdleRule { seconds: 100, action: IdleAction::Pause });
        Desired { spec, goal, expires_at: None, idle, status }
    }

    #[test]
    fn a_sandbox_rests_once_nobody_has_used_it_for_long_enough() {
        let desired = resting(Goal::Running, Phase::Running);
        let observed = Observed::new(desired.spec.id, ObservedState::Running);
        for (last, now, steps) in [
            (LastUse::Now, NOW + 1000, [].as_slice()),
            (LastUse::At(at(NOW)), NOW + 99, &[]),
            (LastUse::At(at(NOW)), NOW + 100, &[Step::Rest]),
            // It has only begun to run: nobody could have used it.
            (LastUse::At(at(0)), NOW + 39, &[]),
            (LastUse::At(at(0)), NOW + 40, &[Step::Rest]),
        ] {
            assert_eq!(plan(&desired, Some(&observed), last, at(now)), steps, "{last:?} {now}");
        }
        for (goal, phase) in [
            (Goal::Running, Phase::Pending),
            (Goal::Running, Phase::Resuming),
            (Goal::Paused, Phase::Running),
            (Goal::Removed, Phase::Running),
        ] {
            let desired = resting(goal, phase);
            assert_eq!(desired.idle_at(LastUse::At(at(0)), at(NOW)), None, "{goal:?} {phase}");
        }
    }

    #[test]
    fn a_sandbox_that_is_to_sleep_is_paused_unless_somebody_uses_it() {
        let desired = resting(Goal::Asleep, Phase::Running);
        let running = Observed::new(desired.spec.id, ObservedState::Running);
        let quiet = LastUse::At(at(NOW - 200));
        assert_eq!(plan(&desired, Some(&running), LastUse::Now, at(NOW)), [Step::Wake]);
        let steps = plan(&desired, Some(&running), quiet, at(NOW));
        let [Step::Record(status), Step::Pause] = steps.as_slice() else { panic!("{steps:?}") };
        assert_eq!((status.phase, status.reason), (Phase::Pausing, Reason::Idle));

        let paused = Observed::new(desired.spec.id, ObservedState::Paused);
        let pausing = resting(Goal::Asleep, Phase::Pausing);
        let steps = plan(&pausing, Some(&paused), quiet, at(NOW));
        let [Step::Record(status)] = steps.as_slice() else { panic!("{steps:?}") };
        assert_eq!((status.phase, status.reason), (Phase::Paused, Reason::Idle));
        let asleep = resting(Goal::Asleep, Phase::Paused);
        for last in [quiet, LastUse::Now] {
            assert_eq!(plan(&asleep, Some(&paused), last, at(NOW)), []);
        }
    }
}
