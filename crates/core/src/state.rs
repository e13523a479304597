//! The states of a sandbox as clients see them.
//!
//! ```text
//!            ┌──────────── Failed ◄──────────┐
//!            │                ▲              │
//! Pending ───┴──► Running ────┴─► Terminated │
//!                  │   ▲                     │
//!          Pausing ▼   │ Resuming            │
//!                 Paused ────────────────────┘
//!
//! any ──► Stopping ──► (gone)
//! ```

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Where a sandbox is in its life; the words are those of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    Pending,
    Running,
    Pausing,
    Paused,
    Resuming,
    Stopping,
    Terminated,
    Failed,
}

impl Phase {
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Running,
        Self::Pausing,
        Self::Paused,
        Self::Resuming,
        Self::Stopping,
        Self::Terminated,
        Self::Failed,
    ];

    /// Whether the sandbox's processes have ended for good.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Terminated | Self::Failed)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Pausing => "Pausing",
            Self::Paused => "Paused",
            Self::Resuming => "Resuming",
            Self::Stopping => "Stopping",
            Self::Terminated => "Terminated",
            Self::Failed => "Failed",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a sandbox is in its phase, as a word that programs compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    ImagePulling,
    ContainerStarting,
    ContainerRunning,
    ContainerPaused,
    ContainerExited,
    ContainerExitedError,
    OutOfMemory,
    ImagePullFailed,
    StartFailed,
    Vanished,
    UserRequest,
    Expired,
    Idle,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ImagePulling => "IMAGE_PULLING",
            Self::ContainerStarting => "CONTAINER_STARTING",
            Self::ContainerRunning => "CONTAINER_RUNNING",
            Self::ContainerPaused => "CONTAINER_PAUSED",
            Self::ContainerExited => "CONTAINER_EXITED",
            Self::ContainerExitedError => "CONTAINER_EXITED_ERROR",
            Self::OutOfMemory => "OUT_OF_MEMORY",
            Self::ImagePullFailed => "IMAGE_PULL_FAILED",
            Self::StartFailed => "START_FAILED",
            Self::Vanished => "VANISHED",
            Self::UserRequest => "USER_REQUEST",
            Self::Expired => "EXPIRED",
            Self::Idle => "IDLE",
        }
    }
}

/// A phase, why, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub phase: Phase,
    pub reason: Reason,
    pub message: String,
    pub since: Timestamp,
}

impl Status {
    /// That of a sandbox which was just asked for.
    pub fn starting(now: Timestamp) -> Self {
        Self {
            phase: Phase::Pending,
            reason: Reason::ContainerStarting,
            message: "the sandbox is being started".to_owned(),
            since: now,
        }
    }
}
