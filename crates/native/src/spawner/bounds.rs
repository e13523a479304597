//! What bounds every process of every sandbox, however the server was started. What counts for a
//! sandbox as a whole is limited by its control group.

use osb_sys::{fork::SingleThread, seccomp::Filter};
use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use super::protocol::{Failure, Step};

/// What is allowed at first, and what a program may raise it to.
const LIMITS: [(Resource, Option<u64>, Option<u64>); 15] = [
    (Resource::As, None, None),
    // A dump would go where the host's settings say, which may be a program of the host.
    (Resource::Core, Some(0), Some(0)),
    (Resource::Cpu, None, None),
    (Resource::Data, None, None),
    (Resource::Fsize, None, None),
    (Resource::Locks, None, None),
    // The kernel's own default; such memory cannot be swapped out.
    (Resource::Memlock, Some(8 << 20), Some(8 << 20)),
    // Queues take memory of the kernel: again its default.
    (Resource::Msgqueue, Some(819_200), Some(819_200)),
    (Resource::Nice, Some(0), Some(0)),
    // The control group counts processes; where there is none, this is set for each sandbox.
    (Resource::Nproc, None, None),
    (Resource::Rss, None, None),
    (Resource::Rtprio, Some(0), Some(0)),
    (Resource::Rttime, None, None),
    // Of all processes of a user together; on machines with much memory the kernel allows more.
    (Resource::Sigpending, Some(16_384), Some(16_384)),
    (Resource::Stack, Some(8 << 20), None),
];

/// How many descriptors a program has at first: some break on numbers above a thousand.
const DESCRIPTORS: u64 = 1024;
/// What it may raise that to. The memory that they take is that of the sandbox.
const MOST_DESCRIPTORS: u64 = 524_288;

/// The bounds, made once for all sandboxes.
#[derive(Debug)]
pub(super) struct Bounds {
    filter: Filter,
    host_files: Filter,
}

/// Whose files a sandbox may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touched {
    /// Such that only sandboxes see.
    SandboxFiles,
    /// Also some that programs of the host may see.
    HostFiles,
}

impl Bounds {
    /// Some limits count also for all of a user namespace, by what its maker had. So the spawner,
    /// which makes them, takes on all but that of descriptors itself, and sandboxes inherit them.
    pub(super) fn assume() -> Result<Self, Failure> {
        for (resource, current, maximum) in LIMITS {
            limit(resource, Rlimit { current, maximum })?;
        }
        Ok(Self {
            filter: Filter::for_sandboxes().step("make the filter of system calls")?,
            host_files: Filter::for_sandboxes_on_host_files()
                .step("make the filter of system calls")?,
        })
    }

    /// To be done in the sandbox: the spawner may need more.
    pub(super) fn limit_descriptors() -> Result<(), Failure> {
        let (current, maximum) = (Some(DESCRIPTORS), Some(MOST_DESCRIPTORS));
        limit(Resource::Nofile, Rlimit { current, maximum })
    }

    /// The last step before execd: afterwards most calls are refused.
    pub(super) fn filter_calls(
        &self,
        alone: &SingleThread,
        touched: Touched,
    ) -> Result<(), Failure> {
        let filter = match touched {
            Touched::SandboxFiles => &self.filter,
            Touched::HostFiles => &self.host_files,
        };
        filter.install(alone).step("filter system calls")
    }
}

/// Does `work` while this process may have no more than `most` processes.
pub(super) fn with_processes<T>(most: u32, work: impl FnOnce() -> T) -> Result<T, Failure> {
    let own = getrlimit(Resource::Nproc);
    limit(Resource::Nproc, Rlimit { current: Some(most.into()), ..own })?;
    let done = work();
    limit(Resource::Nproc, own)?;
    Ok(done)
}

/// To be done in the sandbox, as its root: each of its users may have so many.
pub(super) fn limit_processes(most: u32) -> Result<(), Failure> {
    limit(Resource::Nproc, Rlimit { current: Some(most.into()), maximum: Some(most.into()) })
}

/// Sets a limit, or what comes nearest if the host gives us less: it may have taken the power to
/// raise limits from the server, and has a limit of its own for descriptors.
fn limit(resource: Resource, wanted: Rlimit) -> Result<(), Failure> {
    let set = setrlimit(resource, wanted).or_else(|error| match error {
        Errno::PERM => {
            let own = getrlimit(resource).maximum;
            let least = |limit: Option<u64>| [limit, own].into_iter().flatten().min();
            let nearest = Rlimit { current: least(wanted.current), maximum: least(wanted.maximum) };
            setrlimit(resource, nearest)
        }
        error => Err(error),
    });
    set.step("set a limit")
}
