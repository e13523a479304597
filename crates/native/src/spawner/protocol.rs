//! What the server and the spawner say to each other. One reply per request, in order.

use std::{fmt, io, path::PathBuf};

use osb_sys::userns::IdBase;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Makes a sandbox. With it come the descriptors of execd's program, of the pipe on which the new
    /// process reports a [`Failure`], and then those that execd is handed, in the order of its
    /// instructions. If the pipe ends without a word, execd is running.
    Spawn(Spawn),
    /// Collects the exit status of a first process that has ended.
    Reap { pid: i32 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spawn {
    pub(crate) hostname: String,
    pub(crate) base: IdBase,
    pub(crate) root: RootPlan,
    /// The files through which a process enters the sandbox's control groups.
    pub(crate) doors: Vec<PathBuf>,
}

/// How the root of the sandbox is put together, in paths of the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RootPlan {
    /// An empty directory that the mounts may cover.
    pub(crate) stage: PathBuf,
    /// Topmost first.
    pub(crate) layers: Vec<PathBuf>,
    pub(crate) upper: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) views: Vec<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// With it comes the descriptor of the process.
    Spawned {
        pid: i32,
    },
    Reaped(Option<Ended>),
    Failed(Failure),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Ended {
    Code(i32),
    Signal(i32),
}

/// A step that failed on the way to a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failure {
    step: String,
    cause: String,
}

impl Failure {
    pub(crate) fn new(step: &str, cause: &dyn std::error::Error) -> Self {
        Self { step: step.to_owned(), cause: cause.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.cause)
    }
}

impl std::error::Error for Failure {}

/// Names the step that an operation was.
pub(crate) trait Step<T> {
    fn step(self, what: &str) -> Result<T, Failure>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(what, &error))
    }
}

impl<T> Step<T> for rustix::io::Result<T> {
    fn step(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(what, &error))
    }
}

impl<T> Step<T> for Result<T, osb_sys::fs::PathError> {
    fn step(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            step: what.to_owned(),
            cause: format!("{error}: {}", error.io()),
        })
    }
}
