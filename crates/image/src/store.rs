//! The images on this machine.
//!
//! ```text
//!  blobs/sha256/<hex>               content by its digest: manifests, configurations, layers
//!  ingest/                          blobs of which a part is here
//!  layers/<chain id>/files          a layer, unpacked: what it changes of those below
//!  merged/<chain id>/files          a layer and all below it, as one
//!  images/<manifest>.json           an image of which everything is here
//!  names.json                       which image has which name
//!  unsettled/                       what would not survive a loss of power yet
//!  unfinished/                      what nobody needs if no process is at it
//!  host/                            the image `host`
//!  etc/                             what every sandbox has there, whatever its image
//! ```
//!
//! Whatever has its name is whole, and an image has its file once all of its parts have theirs. So a
//! process that is killed leaves things without use, and nothing wrong.

mod blobs;
mod collect;
mod draft;
mod intake;
mod known;
mod layers;
mod layout;
mod merge;
mod names;
mod open;
mod settle;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use osb_core::ImageName;
use osb_registry::{Digest, InvalidManifest, Reference};
use osb_sys::{fs::PathError, rootless::Rights, userns::IdBase};
use tokio::sync::watch;

pub(crate) use self::merge::merged_of;
pub use self::{
    blobs::Ingest,
    collect::Collected,
    draft::Draft,
    intake::Intake,
    known::{Image, Listed, Usage},
    layers::Progress,
};
use self::{
    known::{State, key_of},
    layout::Layout,
    settle::Settler,
};
use crate::{Rootfs, Settings, UnpackError};

/// The images on this machine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Images {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    layout: Layout,
    owners: IdBase,
    rights: Rights,
    settings: Settings,
    /// By the names that [`key_of`] makes of those in the settings.
    aliases: HashMap<String, String>,
    host: Rootfs,
    etc: PathBuf,
    /// Held for moments only, and never while anything waits for a disk.
    state: Mutex<State>,
    /// Held while something gets its name or loses it, and taken before `state`.
    disk: Mutex<()>,
    layers: layers::Turns,
    settler: Arc<Settler>,
    stop: AtomicBool,
    /// Told whenever a name begins to stand for an image, or ceases to.
    renamed: watch::Sender<()>,
}

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The client must ask for another image, or pull this one first.
    #[error(
        "image {0} is not known here: pull it, or use host, which is the programs of this host"
    )]
    Unknown(ImageName),
    /// A part of the image is not here: it must be pulled again.
    #[error("{what} {digest} is not here")]
    Missing { what: &'static str, digest: Digest },
    /// The image is at fault.
    #[error("the image is refused: {0}")]
    Refused(String),
    #[error("the manifest of the image is refused")]
    Manifest(#[source] InvalidManifest),
    #[error("layer {number} of the image cannot be used")]
    Layer {
        number: usize,
        #[source]
        source: UnpackError,
    },
    /// What was received is not what was asked for.
    #[error("{wanted} was asked for, and {found} is what came")]
    Mismatch { wanted: String, found: String },
    /// An archive that is imported or exported.
    #[error("cannot read the archive")]
    Read(#[source] std::io::Error),
    #[error("cannot write the archive")]
    Write(#[source] std::io::Error),
    /// The store's own files are in trouble.
    #[error("cannot use the store of images")]
    Store(#[source] PathError),
}

impl From<PathError> for ImageError {
    fn from(error: PathError) -> Self {
        Self::Store(error)
    }
}

impl Images {
    /// Opens the store in `directory`, and makes it if it is new. The owners of files in its layers
    /// are counted from `owners`. What an earlier process left half-made is cleared away.
    pub fn open(
        directory: impl Into<PathBuf>,
        owners: IdBase,
        settings: Settings,
    ) -> Result<Self, ImageError> {
        open::open(directory.into(), owners, settings)
    }

    /// The image of this name: `host`, an alias, a name, or the digest of a manifest. It looks at
    /// memory only.
    pub fn find(&self, name: &ImageName) -> Result<Image, ImageError> {
        let asked = self.inner.aliases.get(&key_of(name.as_str()));
        let asked = asked.map_or(name.as_str(), String::as_str);
        if asked == "host" {
            return Ok(Image::host(name.clone(), self.inner.host.clone()));
        }
        let state = self.state();
        let digest = match Digest::parse(asked) {
            Ok(digest) => Some(digest),
            Err(_) => Reference::parse(asked).ok().and_then(|asked| state.named(&asked)),
        };
        let known = digest.and_then(|digest| state.image(&digest));
        known
            .map(|known| Image::new(name.clone(), known))
            .ok_or_else(|| ImageError::Unknown(name.clone()))
    }

    /// The image with this manifest, whether or not it has a name.
    pub fn by_digest(&self, digest: &Digest) -> Result<Image, ImageError> {
        self.find(&ImageName::new(digest.as_str()))
    }

    pub fn list(&self) -> Vec<Listed> {
        self.state().list()
    }

    /// What all images take on the disk.
    pub fn usage(&self) -> Usage {
        self.state().usage()
    }

    /// The layer of those files that every sandbox has on top of its image, other than `host`, which
    /// has them already.
    pub fn etc(&self) -> &Path {
        &self.inner.etc
    }

    /// Hears of every name that begins to stand for an image, or ceases to.
    pub fn renamed(&self) -> watch::Receiver<()> {
        self.inner.renamed.subscribe()
    }

    /// Lets whatever is being unpacked end soon, with an error: for a server that ends.
    pub fn break_off(&self) {
        self.inner.stop.store(true, Ordering::Relaxed);
    }

    /// Begins to take something in. Nothing that it touches is collected until it is dropped.
    pub fn intake(&self) -> Intake {
        Intake::new(self.clone())
    }

    /// Where the store is.
    pub(crate) fn directory(&self) -> &Path {
        self.inner.layout.root()
    }

    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disk(&self) -> MutexGuard<'_, ()> {
        self.inner.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
