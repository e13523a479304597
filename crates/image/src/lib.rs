//! Root file systems for sandboxes.
//!
//! An [`Images`] store turns the name that a client asks for into an [`Image`]: layers to stack,
//! parts of the host to show, and what programs in it begin with. The one image that needs no download
//! is `host`. Others come through an [`Intake`]: blobs first, then their layers, then a name. A
//! [`Remote`] pulls them from registries and pushes them there.

mod archive;
mod compression;
mod configuration;
mod diff;
mod etc;
mod export;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod host;
mod import;
mod parcel;
mod remote;
mod settings;
mod stack;
mod store;
mod tarball;
#[cfg(test)]
mod trial;
mod unpack;

pub use configuration::{
    Configuration, Healthcheck, ImageConfig, LayerList, RunConfiguration, Step,
};
pub use diff::{Diff, Diffed};
pub use export::ArchiveKind;
pub use import::Imported;
pub use parcel::{Contained, Packing, Parcel, ParcelError, Piece};
pub use remote::{
    LayerProgress, LayerStage, Phase, Pull, PullProgress, Pulled, PushProgress, Remote, RemoteError,
};
pub use settings::{Limits, Settings};
pub use stack::{Directory, Follow, Found, Kind, Seen, Stack};
pub use store::{
    Collected, Draft, Image, ImageError, Images, Ingest, Intake, Listed, Progress, Usage,
};
pub use tarball::{Entry, OPAQUE, Tarball, WHITEOUT, What, is_mark};
pub use unpack::UnpackError;

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
