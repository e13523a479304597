//! Where things are on the disk.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use osb_registry::{Algorithm, Digest};
use osb_sys::fs::{self, PathError};

/// The directory of the store.
#[derive(Debug)]
pub(super) struct Layout {
    root: PathBuf,
    /// So that no two things that are being made or removed have one name.
    number: AtomicU64,
}

/// Something that has a name in the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Thing {
    Blob(Digest),
    /// By its chain id.
    Layer(Digest),
    Merged(Digest),
}

impl Thing {
    pub(super) const ALGORITHMS: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Sha512];

    /// A name for a file that is about it.
    pub(super) fn label(&self) -> String {
        let (kind, digest) = match self {
            Self::Blob(digest) => ("blob", digest),
            Self::Layer(chain) => ("layer", chain),
            Self::Merged(chain) => ("merged", chain),
        };
        format!("{kind}-{}", file_name(digest))
    }

    pub(super) fn of_label(label: &str) -> Option<Self> {
        let (kind, digest) = label.split_once('-')?;
        let digest = of_file_name(digest)?;
        match kind {
            "blob" => Some(Self::Blob(digest)),
            "layer" => Some(Self::Layer(digest)),
            "merged" => Some(Self::Merged(digest)),
            _ => None,
        }
    }
}

impl Layout {
    pub(super) fn new(root: PathBuf) -> Self {
        // Where on the disk something is put follows from its name: not where an earlier process has
        // just removed the same.
        let first = u64::from(std::process::id()) << 32;
        Self { root, number: AtomicU64::new(first) }
    }

    /// Makes the directories that are missing.
    pub(super) fn prepare(&self) -> Result<(), PathError> {
        for name in ["ingest", "layers", "merged", "images", "unsettled", "unfinished"] {
            fs::create_private_dir_all(self.root.join(name))?;
        }
        for algorithm in Thing::ALGORITHMS {
            fs::create_private_dir_all(self.blobs(algorithm))?;
        }
        // Layers and what they are merged to are made there.
        fs::spread(self.directory("unfinished"));
        Ok(())
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn directory(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn blobs(&self, algorithm: Algorithm) -> PathBuf {
        self.root.join("blobs").join(algorithm.as_str())
    }

    pub(super) fn thing(&self, thing: &Thing) -> PathBuf {
        match thing {
            Thing::Blob(digest) => self.blobs(digest.algorithm()).join(digest.hex()),
            Thing::Layer(chain) => self.root.join("layers").join(file_name(chain)),
            Thing::Merged(chain) => self.root.join("merged").join(file_name(chain)),
        }
    }

    /// The files of a layer or of several that were merged.
    pub(super) fn files(&self, thing: &Thing) -> PathBuf {
        self.thing(thing).join("files")
    }

    pub(super) fn image(&self, manifest: &Digest) -> PathBuf {
        self.root.join("images").join(format!("{}.json", file_name(manifest)))
    }

    pub(super) fn names(&self) -> PathBuf {
        self.root.join("names.json")
    }

    pub(super) fn ingest(&self, digest: &Digest) -> PathBuf {
        self.root.join("ingest").join(file_name(digest))
    }

    /// A name that nothing has, for something that is being made or removed.
    pub(super) fn unfinished(&self) -> PathBuf {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        self.root.join("unfinished").join(number.to_string())
    }
}

/// A digest as the name of a file.
pub(super) fn file_name(digest: &Digest) -> String {
    match digest.algorithm() {
        Algorithm::Sha256 => digest.hex().to_owned(),
        Algorithm::Sha512 => format!("sha512.{}", digest.hex()),
    }
}

pub(super) fn of_file_name(name: &str) -> Option<Digest> {
    match name.strip_prefix("sha512.") {
        Some(hex) => Digest::parse(&format!("sha512:{hex}")).ok(),
        None => Digest::parse(&format!("sha256:{name}")).ok(),
    }
}
