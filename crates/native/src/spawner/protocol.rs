//! What the server and the spawner say to each other. One reply per request, in order.

use std::path::PathBuf;

pub(crate) use osb_sys::step::{Failure, Step};
use osb_sys::userns::IdBase;
use serde::{Deserialize, Serialize};

use super::volumes::VolumePlan;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Makes a sandbox. With it come the descriptors of execd's program, of the pipe on which the new
    /// process reports a [`Failure`], of a mount without a place that holds the sandbox's own
    /// files in `upper` and the overlay's in `work`, then those that execd is handed, in the
    /// order of its instructions, and last those of the volumes that are not memory. If the pipe
    /// ends without a word, execd is running.
    ///
    /// `next` are ranges of ids that will be asked for soon.
    Spawn { spawn: Spawn, next: Vec<IdBase> },
    /// Collects the exit status of a first process that has ended.
    Reap { pid: i32 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spawn {
    /// Given to this sandbox alone; its ids follow from it.
    pub(crate) base: IdBase,
    pub(crate) root: RootPlan,
    /// The files through which a process enters the sandbox's control groups.
    pub(crate) doors: Vec<PathBuf>,
    /// How many processes it may have, if no control group counts them.
    pub(crate) processes: Option<u32>,
}

/// How the root of the sandbox is put together, in paths of the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RootPlan {
    /// Topmost first.
    pub(crate) layers: Vec<PathBuf>,
    pub(crate) views: Vec<PathBuf>,
    /// Outer ones first.
    pub(crate) volumes: Vec<VolumePlan>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// With it comes the descriptor of the process, and then those of the outlets of its network
    /// if there are any.
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
