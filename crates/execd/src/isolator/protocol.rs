//! What execd and the isolator say to each other. One reply per request, in order.

use std::path::PathBuf;

use osb_sys::step::Failure;
use serde::{Deserialize, Serialize};

/// The most places that a session may have beside the common ones.
pub(crate) const PLACES: usize = 64;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Makes a session. With it come the descriptors of the inner execd's instructions and of the
    /// channel on which it gets its connections.
    Open(Open),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Open {
    /// The later ones cover the earlier ones.
    pub(crate) places: Vec<Place>,
    pub(crate) tmp: Tmp,
    pub(crate) network: Network,
    /// Who runs the inner execd, instead of the sandbox's root.
    pub(crate) identity: Option<(u32, u32, Vec<u32>)>,
}

/// A path of the session that is not as in the rest of its view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// What is shown, in the sandbox.
    pub(crate) source: PathBuf,
    /// Where the session sees it.
    pub(crate) target: PathBuf,
    pub(crate) mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    Writable,
    ReadOnly,
    /// Writes go to a layer that the session has for itself.
    Layer,
    /// Writes go to a layer that the next session with the same source finds again.
    KeptLayer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tmp {
    Private,
    Shared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Network {
    Shared,
    /// Nothing but a loopback interface.
    None,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// With it comes the descriptor of the session's first process.
    Opened,
    /// What was asked for is impossible.
    Refused(Failure),
    Failed(Failure),
}
