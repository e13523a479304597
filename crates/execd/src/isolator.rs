//! The isolator: a process that puts isolated sessions together, for an execd that could not.
//!
//! An isolated session is a second execd, the first process of its own namespaces inside those of
//! the sandbox. Who makes the mounts of such a view needs powers that nobody in a sandbox should
//! have, so a process of its own does it, with one thread and one kind of request. It believes
//! nothing that it is asked: it lives in the sandbox's root, finds every path from there without
//! following what leads elsewhere, adds restrictions to mounts and never takes one away.

mod child;
mod devices;
mod paths;
mod protocol;
mod serve;
mod uppers;
mod view;

pub(crate) use protocol::{Mode, Network, Open, Place, Reply, Request, Tmp};
pub(crate) use serve::serve;
