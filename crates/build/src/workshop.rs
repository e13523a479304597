//! Where an image is built: what the builder asks of the rest of the world.

use std::{error, fmt, fs::File, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use osb_core::ImageName;
use osb_image::{Configuration, Stack};
use osb_registry::{Descriptor, Digest, Platform, Reference};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{Account, CacheKey, Reach, Sharing};

/// Layers that are stacked on each other, lowest first: what a step stands on, and what it leaves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    pub layers: Vec<Layer>,
}

/// A layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The archive as it is kept.
    pub blob: Descriptor,
    /// What the archive hashes to when it is not compressed.
    pub diff_id: Digest,
}

/// What a step has left, and when, in seconds since 1970: images that are built of steps that were done
/// before say that they were made then, and are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub tree: Tree,
    pub at: i64,
}

/// An image to build on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseImage {
    pub tree: Tree,
    pub configuration: Configuration,
}

/// Where steps run and layers are kept. Nothing that is asked for here is visible to anybody before
/// [`Workshop::finish`], and dropping a future leaves nothing that [`Workshop`]s do not clear away by
/// themselves.
#[async_trait]
pub trait Workshop: Send + Sync {
    /// The image of this name, from wherever it has to be fetched.
    async fn base(&self, image: &ImageName, platform: &Platform) -> Result<BaseImage, WorkError>;

    /// The files of a tree, to be looked into.
    async fn open(&self, tree: &Tree) -> Result<Arc<Stack>, WorkError>;

    /// Runs a step in a sandbox on a tree. What it changed is a layer that nobody has yet.
    async fn run(&self, on: &Tree, step: &RunStep, output: &dyn Output) -> Result<Ran, WorkError>;

    /// Puts a layer, which is an archive that is not compressed, on top of a tree.
    async fn lay(&self, on: &Tree, layer: File) -> Result<Tree, WorkError>;

    /// Gets a file from elsewhere, as a sandbox would that has the policy of the build.
    async fn fetch(&self, url: &str) -> Result<File, WorkError>;

    /// An empty file that is gone when it is closed.
    fn scratch(&self) -> Result<File, WorkError>;

    /// What a step with this key has left, if it was done before and all of it is still here.
    async fn recall(&self, key: &CacheKey) -> Result<Option<Made>, WorkError>;

    async fn remember(&self, key: &CacheKey, made: &Made) -> Result<(), WorkError>;

    /// Makes the tree an image with these names. Answers with the digest of its manifest. The layers of
    /// `configuration` are left to be filled in.
    async fn finish(
        &self,
        tree: &Tree,
        configuration: Configuration,
        names: &[Reference],
    ) -> Result<Digest, WorkError>;
}

/// A command, with all that it sees.
#[derive(Debug, Clone)]
pub struct RunStep {
    /// `[2/7] RUN make`
    pub title: String,
    /// The program and its arguments.
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Variables that are secrets.
    pub secret_environment: Vec<(String, Secret)>,
    pub workdir: String,
    pub account: Account,
    pub network: Reach,
    pub caches: Vec<CacheMount>,
    pub tmpfs: Vec<TmpfsMount>,
    pub secrets: Vec<SecretFile>,
    /// Places whose changes are none of the image, relative to its root.
    pub without: Vec<PathBuf>,
    /// No file of the layer is newer than this, in seconds since 1970.
    pub newest: Option<i64>,
}

/// A directory that outlives the build, for the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheMount {
    /// Equal for all that are to see the same files.
    pub id: String,
    pub target: String,
    pub read_only: bool,
    pub sharing: Sharing,
    /// What a new one is like.
    pub mode: u32,
    pub user: u32,
    pub group: u32,
}

/// A directory in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmpfsMount {
    pub target: String,
    pub size: Option<u64>,
}

/// A file that is there while the step runs, and nowhere else.
#[derive(Debug, Clone)]
pub struct SecretFile {
    pub target: String,
    pub content: Secret,
    pub mode: u32,
    pub user: u32,
    pub group: u32,
}

/// Something that is written nowhere. It prints as dots.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<Vec<u8>>>);

impl Secret {
    pub fn new(content: Vec<u8>) -> Self {
        Self(Arc::new(Zeroizing::new(content)))
    }

    /// The secret itself, for the one step that is given it.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Secret {
    fn as_ref(&self) -> &[u8] {
        self.reveal()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How a step ended.
#[derive(Debug)]
pub enum Ran {
    /// Well. What it changed is an archive, not compressed.
    Changed { layer: File, entries: u64 },
    /// With another exit code than 0. The notes are what explains it beside what it said.
    Failed { code: i32, notes: Vec<String> },
    /// By a signal, such as that of too little memory; the text says which.
    Killed(String),
}

/// Who hears what a step says.
pub trait Output: Send + Sync {
    fn line(&self, stream: Stream, line: &str);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// Why a workshop did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// Whoever wants the build has to change something; the text says what.
    #[error("{0}")]
    Refused(String),
    /// Something is wrong here; the text says what was tried.
    #[error("{doing}")]
    Failed {
        doing: String,
        #[source]
        source: Box<dyn error::Error + Send + Sync>,
    },
}

impl WorkError {
    pub fn failed(
        doing: impl Into<String>,
        source: impl Into<Box<dyn error::Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { doing: doing.into(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print() {
        assert!(!format!("{:?}", Secret::new(b"hunter2".to_vec())).contains("hunter2"));
    }
}
