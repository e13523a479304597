//! What a sandbox is, without doing anything: its spec, its states, the [`Runtime`] seam, and the
//! pure [`plan`] that says what to do next.
//!
//! No I/O, no async runtime, no HTTP. Data flows one way: a request becomes [`Desired`] state,
//! [`plan`] compares it with what a runtime [`Observed`], and the server applies the [`Step`]s.

mod accounts;
pub mod agent;
mod builds;
mod chain;
mod clock;
mod label;
mod plan;
mod quantity;
mod runtime;
mod spec;
mod state;
#[cfg(feature = "testkit")]
pub mod testkit;
mod volume;

pub use accounts::{Account, Accounts, UnknownAccount};
pub use builds::{Builds, LentFile, Written};
pub use chain::Chain;
pub use clock::{Clock, SystemClock};
pub use label::{InvalidLabel, check_labels};
pub use plan::{Desired, Goal, IdleAction, IdleRule, LastUse, Step, plan};
pub use quantity::{Cpu, InvalidQuantity, Memory};
pub use runtime::{
    Dialled, Exit, Kept, Network, Observed, ObservedState, Outlets, Pause, PoolStatus, Printed,
    Runtime, RuntimeError, Snapshots, StageTimes, Usage, Used,
};
pub use spec::{ImageDigest, ImageName, Resources, SandboxSpec, Token};
pub use state::{Phase, Reason, Status};
pub use volume::{KeptVolume, Volume, VolumeProblem, VolumeSource, Volumes, is_volume_name};
