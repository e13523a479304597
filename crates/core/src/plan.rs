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
    /// The last status that was recorded.
    pub status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    Running,
    Paused,
    Removed,
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
    /// Have the runtime remove the sandbox and everything made for it.
    Remove,
    /// Delete the record: nothing is left of the sandbox.
    Forget,
}

/// The steps that bring `observed` towards `desired`; none if all is as it should be.
///
/// `observed` is `None` when the runtime has nothing of this sandbox.
pub fn plan(desired: &Desired, observed: Option<&Observed>, now: Timestamp) -> Vec<Step> {
    let state = observed.map(|o| &o.state).filter(|state| **state != ObservedState::Gone);
    let record = |phase, reason, message: &str| {
        Step::Record(Status { phase, reason, message: message.to_owned(), since: now })
    };
    let phase = desired.status.phase;

    let expired = desired.expires_at.is_some_and(|at| at <= now);
    if desired.goal == Goal::Removed || expired {
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
        (Some(ObservedState::Running), Goal::Paused) => match phase {
            Phase::Pausing => vec![Step::Pause],
            Phase::Pending
            | Phase::Running
            | Phase::Paused
            | Phase::Resuming
            | Phase::Stopping
            | Phase::Terminated
            | Phase::Failed => {
                vec![record(Phase::Pausing, Reason::UserRequest, "pausing"), Step::Pause]
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
        (Some(ObservedState::Running), _) if phase == Phase::Running => Vec::new(),
        (Some(ObservedState::Running), _) => {
            vec![record(Phase::Running, Reason::ContainerRunning, "the sandbox is running")]
        }
        (Some(ObservedState::Paused), _) if phase == Phase::Paused => Vec::new(),
        (Some(ObservedState::Paused), _) => {
            vec![record(Phase::Paused, Reason::ContainerPaused, "the sandbox is paused")]
        }
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
