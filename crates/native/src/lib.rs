//! The runtime on this host: namespaces, an overlay and control groups, with nothing else
//! installed.
//!
//! [`Native`] is what the server holds. It never forks: a single-threaded helper process, the
//! spawner, makes each sandbox and hands back a descriptor for its first process.

mod beginning;
mod disk;
mod doctor;
mod fix;
mod forsaken;
mod ids;
mod layout;
mod native;
mod rootless;
mod sandbox;
mod shelf;
mod spawner;
mod traces;
mod volumes;

pub use doctor::{Check, Outcome, doctor, trial};
pub use fix::{Fixed, dissolve, end_trial, groups};
pub use forsaken::clear_forsaken;
pub use native::{Config, Native, PoolConfig, StartError};
pub use osb_image::Settings as ImageSettings;
pub use osb_sys::rootless::Obstacle;
pub use rootless::become_root;
pub use spawner::spawner_main;
pub use traces::{Count, Traces};
