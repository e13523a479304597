use std::{
    net::{TcpListener, TcpStream, UdpSocket},
    os::{fd::OwnedFd, unix::net::UnixStream},
    time::Duration,
};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use osb_api::{SandboxId, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::{Builds, ImageName, SandboxSpec, VolumeProblem, Volumes};

/// A place where sandboxes run: this host, a Docker daemon, a Kubernetes cluster.
///
/// A runtime places execd and opens streams to it; everything inside the sandbox is execd's
/// business. It keeps no truth in memory: after a restart [`Runtime::list`] finds everything that
/// it owns in the world.
///
/// Dropping any of these futures leaves something that [`Runtime::remove`] can clean up.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// The word operators write in the configuration: `native`, `docker`, `kubernetes`.
    fn name(&self) -> &'static str;

    /// Makes a sandbox that matches `spec` exist.
    ///
    /// Returns once the runtime has accepted the work; the sandbox may still be starting, and
    /// progress arrives through [`Runtime::watch`]. Fails with [`RuntimeError::Conflict`] if the
    /// sandbox exists with another spec, and leaves nothing behind when it fails.
    async fn ensure(&self, spec: &SandboxSpec) -> Result<Observed, RuntimeError>;

    /// Makes the sandbox and everything made for it be gone. Absence is success.
    async fn remove(&self, id: SandboxId) -> Result<(), RuntimeError>;

    /// Everything this runtime owns now, found in the world and not in memory.
    async fn list(&self) -> Result<Vec<Observed>, RuntimeError>;

    /// Changes as they happen. The stream may skip and repeat; [`Runtime::list`] is the truth.
    fn watch(&self) -> BoxStream<'static, Observed>;

    /// Opens a stream to a port inside the sandbox; execd's own port is
    /// [`osb_api::ports::EXECD`].
    ///
    /// Fails with [`RuntimeError::Refused`] if nothing listens there.
    async fn dial(&self, id: SandboxId, port: u16) -> Result<Dialled, RuntimeError>;

    /// The sandboxes that this runtime keeps started for those who will ask.
    fn pools(&self) -> Vec<PoolStatus> {
        Vec::new()
    }

    /// How long the stages of starting sandboxes took so far, as far as this runtime tells.
    fn stages(&self) -> Vec<StageTimes> {
        Vec::new()
    }

    /// Gives up what is kept for those who have not asked yet, when the server ends for now.
    async fn retire(&self) {}

    /// The power to stop and continue a sandbox, if this runtime has it.
    fn pause(&self) -> Option<&dyn Pause> {
        None
    }

    /// The power to keep a sandbox's files, if this runtime has it.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }

    /// The power to tell what a sandbox uses, if this runtime has it.
    fn usage(&self) -> Option<&dyn Usage> {
        None
    }

    /// The power to keep volumes under names, if this runtime has it.
    fn volumes(&self) -> Option<&dyn Volumes> {
        None
    }

    /// The power to answer for everything that a sandbox sends, if this runtime has it.
    fn network(&self) -> Option<&dyn Network> {
        None
    }

    /// The power to show what a sandbox printed without asking anybody in it, if this runtime has it.
    fn printed(&self) -> Option<&dyn Printed> {
        None
    }

    /// The power to build images in sandboxes, if this runtime has it.
    fn builds(&self) -> Option<&dyn Builds> {
        None
    }
}

/// The power to answer for everything that a sandbox sends into the network. Where nobody does,
/// nothing leaves.
#[async_trait]
pub trait Network: Send + Sync {
    /// The sockets of a sandbox at which everything arrives that it sends to others than itself.
    ///
    /// What it sent since it began is not lost as long as nobody asked before. Whoever asks again,
    /// as a restarted server does, gets new ones; the earlier ones must be closed by then.
    async fn outlets(&self, id: SandboxId) -> Result<Outlets, RuntimeError>;
}

/// Where everything arrives that a sandbox sends. All are in non-blocking mode and in the network
/// namespace of the sandbox.
#[derive(Debug)]
pub struct Outlets {
    /// Takes every connection, of both families. The local address of one that is taken is where
    /// the sandbox wanted to go.
    pub streams: TcpListener,
    /// Receives every datagram, of both families, with its destination as ancillary data.
    pub datagrams: UdpSocket,
    /// Raw sockets that send whole packets of IPv4 and IPv6 to the sandbox: an answer comes from
    /// where the question went.
    pub answers: (OwnedFd, OwnedFd),
}

/// The power to stop a sandbox with its memory kept, and to continue it.
#[async_trait]
pub trait Pause: Send + Sync {
    /// Stops every process of the sandbox. A paused sandbox stays paused.
    async fn pause(&self, id: SandboxId) -> Result<(), RuntimeError>;

    /// Lets them go on. A running sandbox stays running.
    async fn resume(&self, id: SandboxId) -> Result<(), RuntimeError>;
}

/// The power to keep the files that a sandbox wrote, and to start others with them: those whose
/// [`SandboxSpec::snapshot`] names what was kept.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Keeps the files of a sandbox, running or paused, as they are at one moment. It goes on as
    /// before. What is kept already stays as it is.
    async fn take(&self, sandbox: SandboxId, id: SnapshotId) -> Result<Kept, RuntimeError>;

    /// Makes the snapshot be gone. Sandboxes and snapshots that stand on it do not notice; its
    /// files go when none is left. Absence is success.
    async fn delete(&self, id: SnapshotId) -> Result<(), RuntimeError>;

    /// Everything that is kept and not deleted, found in the world and not in memory.
    async fn kept(&self) -> Result<Vec<Kept>, RuntimeError>;
}

/// A snapshot as its runtime sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub id: SnapshotId,
    /// The content of its own files, without that of what it stands on.
    pub bytes: u64,
}

/// The power to tell what a sandbox uses.
#[async_trait]
pub trait Usage: Send + Sync {
    /// What a sandbox that is up, running or paused, has used and uses now.
    async fn usage(&self, id: SandboxId) -> Result<Used, RuntimeError>;
}

/// The power to show what a sandbox printed, whether it is up or over.
#[async_trait]
pub trait Printed: Send + Sync {
    /// The last bytes that its entrypoint printed, at most a mebibyte of them. They are whatever
    /// programs of the sandbox make of them.
    async fn printed(&self, id: SandboxId) -> Result<Vec<u8>, RuntimeError>;
}

/// What a sandbox uses. What is absent, the runtime cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Processor time since the sandbox was made; it never shrinks.
    pub cpu: Duration,
    /// Bytes of memory now, without what is kept of files and can be dropped at any time.
    pub memory: u64,
    /// The most bytes of memory that it had at once, with what was kept of files.
    pub memory_peak: Option<u64>,
    /// Processes and threads now.
    pub processes: u64,
    /// Bytes that its own files take on the disk, if that is limited.
    pub disk: Option<u64>,
}

/// How a pool of sandboxes fares that were started before anybody asked for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStatus {
    pub image: ImageName,
    /// How many wait for somebody to ask.
    pub ready: usize,
    /// How many should.
    pub target: usize,
    /// How often somebody got one.
    pub claims: u64,
    /// How often somebody could have had one and none was ready.
    pub misses: u64,
    /// How often one could not be started, or ended before anybody asked.
    pub failures: u64,
}

/// How long a stage of starting sandboxes took, each time that it succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageTimes {
    pub stage: &'static str,
    /// How often it took at most so long, and longer than the one before; ascending.
    pub within: Vec<(Duration, u64)>,
    /// How often it took longer than all of these.
    pub slower: u64,
    /// All of them together.
    pub total: Duration,
}

/// A connected stream into a sandbox, in non-blocking mode.
#[derive(Debug)]
pub enum Dialled {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A sandbox as its runtime sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    pub id: SandboxId,
    pub state: ObservedState,
    /// How many of its processes the kernel has ended for lack of memory. It never shrinks.
    pub oom_kills: u64,
}

impl Observed {
    /// A sandbox that had memory enough.
    pub fn new(id: SandboxId, state: ObservedState) -> Self {
        Self { id, state, oom_kills: 0 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedState {
    /// Accepted, not yet up.
    Starting,
    /// Up: [`Runtime::dial`] reaches execd.
    Running,
    /// Stopped with its memory kept.
    Paused,
    /// Its entrypoint has ended; its files are still there.
    Exited(Exit),
    /// Nothing of it is left. Only [`Runtime::watch`] says so; [`Runtime::list`] just omits it.
    Gone,
}

/// How an entrypoint ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// The kernel ended it for lack of memory.
    OutOfMemory,
    /// It ended while nobody watched.
    Unknown,
}

/// One variant per reaction of the caller.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The request must change.
    #[error("{0}")]
    Invalid(String),
    /// The request names an image that is not here.
    #[error(
        "image {0} is not here: pull it, or use host, which is the programs of the server's own host"
    )]
    UnknownImage(ImageName),
    /// The request names a snapshot that is not here.
    #[error("snapshot {0} is not known here")]
    UnknownSnapshot(SnapshotId),
    /// The request asks for a volume that cannot be had; the text says which and why.
    #[error("{message}")]
    Volume { problem: VolumeProblem, message: String },
    /// Another sandbox has this id.
    #[error("sandbox {0} exists with another spec")]
    Conflict(SandboxId),
    /// There is no such sandbox.
    #[error("sandbox {0} does not exist")]
    NotFound(SandboxId),
    /// The sandbox is there, but nothing listens on that port.
    #[error("nothing listens on port {port} of sandbox {id}")]
    Refused { id: SandboxId, port: u16 },
    /// No room at the moment; the same call may succeed later.
    #[error("{0}")]
    Busy(String),
    /// The runtime failed; an operator should look at the source.
    #[error("{doing}")]
    Failed {
        doing: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl RuntimeError {
    /// Wraps the cause of a failure in what was being done.
    pub fn failed(
        doing: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { doing: doing.into(), source: source.into() }
    }
}
