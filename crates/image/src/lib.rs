//! Root file systems for sandboxes.
//!
//! An [`Images`] store turns the name that a client asks for into a [`Rootfs`]: layers to stack
//! and parts of the host to show. The one image that needs no download is `host`.

mod host;
mod store;

pub use store::{ImageError, Images};

use std::path::PathBuf;

/// What the root of a sandbox is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rootfs {
    /// Read-only directories whose owners are translated for each sandbox, topmost first.
    pub layers: Vec<PathBuf>,
    /// Directories of the host that are shown read-only, as they are.
    pub views: Vec<View>,
}

/// A directory of the host, shown at the same path in the sandbox.
///
/// Its files keep the host's owners, who are nobody inside: what not every user of the host may
/// read, nobody in a sandbox may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub path: PathBuf,
}
