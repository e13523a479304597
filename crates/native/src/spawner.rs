//! The spawner: the one process that forks.
//!
//! It has a single thread and does one thing at a time, so a fork in it is an ordinary fork. It
//! ends when the server does; the sandboxes it made live on and belong to the host's init then.

mod ahead;
mod bounds;
mod child;
mod handle;
mod masks;
mod place;
mod protocol;
mod root;
mod serve;
mod stage;
mod volumes;

pub(crate) use handle::{Spawned, Spawner, outcome};
pub(crate) use protocol::{Ended, RootPlan, Spawn};
pub use serve::spawner_main;
pub(crate) use volumes::{VolumeKind, VolumePlan};
