//! A workshop with the store of images of this machine.

mod keep;

use std::{
    collections::HashMap,
    fs::File,
    io::{BufWriter, ErrorKind},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use osb_core::ImageName;
use osb_image::{Configuration, Diff, Image, Images, Intake, Stack};
use osb_registry::{Digest, Platform, Reference};
use osb_sys::{rootless::Rights, sparse, userns::IdBase};
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::{
    BaseImage, Cache, CacheKey, Kept, Made, Output, Ran, RunStep, Tree, WorkError, Workshop,
    asker::{self, Asker},
};

/// Somebody who has sandboxes to lend.
#[async_trait]
pub trait Sandboxes: Send + Sync {
    /// The image of this name, pulled if it is not here.
    async fn image(&self, name: &ImageName, platform: &Platform) -> Result<Image, WorkError>;

    /// Runs a step in a new sandbox whose root is an image, and ends the sandbox.
    async fn run(
        &self,
        on: &Image,
        step: &RunStep,
        output: &dyn Output,
    ) -> Result<Ended, WorkError>;

    /// Gets a file from elsewhere, as a sandbox would that has the policy of the build, and writes it
    /// to `to`.
    async fn fetch(&self, url: &str, to: File) -> Result<File, WorkError>;
}

/// How a step ended in a sandbox.
#[derive(Debug)]
pub enum Ended {
    Well(Changes),
    /// The notes are what explains it beside what it said.
    Failed {
        code: i32,
        notes: Vec<String>,
    },
    Killed(String),
}

/// What a sandbox wrote.
#[derive(Debug)]
pub struct Changes {
    /// A directory as layers are, with the marks of the overlay.
    pub files: OwnedFd,
    /// What the owners of its files are counted from.
    pub owners: IdBase,
    /// What the runtime added to the authorities that the image trusts, as PEM.
    pub authorities: Option<String>,
    /// Whatever has to be dropped for the directory to be gone.
    pub until: Option<Box<dyn std::any::Any + Send + Sync>>,
}

/// A workshop for one build: what is made in it is not collected as long as it is there.
pub struct Bench<'a> {
    sandboxes: &'a dyn Sandboxes,
    cache: Cache,
    intake: Arc<Intake>,
    rights: Rights,
    /// Where layers are written before they are kept.
    directory: PathBuf,
    /// The images of the trees of this build.
    known: Arc<Mutex<HashMap<Vec<Digest>, Image>>>,
}

impl std::fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl<'a> Bench<'a> {
    /// A workshop on the images of this machine. `directory` is one on a disk that has room for a layer.
    pub fn new(
        images: &Images,
        sandboxes: &'a dyn Sandboxes,
        cache: Cache,
        rights: Rights,
        directory: impl Into<PathBuf>,
    ) -> Self {
        let (intake, directory) = (Arc::new(images.intake()), directory.into());
        Self { sandboxes, cache, intake, rights, directory, known: Arc::default() }
    }

    /// The image of a tree, which it becomes if it is none yet.
    async fn image_of(&self, tree: &Tree) -> Result<Image, WorkError> {
        let (intake, known, tree) = (self.intake.clone(), self.known.clone(), tree.clone());
        let work = move |_: &Asker| keep::image_of(&intake, &known, &tree);
        blocking("cannot keep the files of a step", work).await
    }

    fn stack(&self, image: &Image) -> Result<Stack, WorkError> {
        let owners = self.rights.ids_of_layers();
        Stack::open(&image.rootfs.layers, owners, self.rights)
            .map_err(|error| WorkError::failed("cannot open the files of an image", error))
    }
}

#[async_trait]
impl Workshop for Bench<'_> {
    async fn base(&self, image: &ImageName, platform: &Platform) -> Result<BaseImage, WorkError> {
        let found = self.sandboxes.image(image, platform).await?;
        let Some(digest) = found.digest else {
            return Err(WorkError::Refused(format!("{image} is no image to build on")));
        };
        let intake = self.intake.clone();
        let work = move |_: &Asker| keep::base(&intake, &digest);
        blocking("cannot read the image to build on", work).await
    }

    async fn open(&self, tree: &Tree) -> Result<Arc<Stack>, WorkError> {
        if tree.layers.is_empty() {
            let none: [PathBuf; 0] = [];
            let stack = Stack::open(none, self.rights.ids_of_layers(), self.rights);
            let failed = |error| WorkError::failed("cannot open an empty image", error);
            return stack.map(Arc::new).map_err(failed);
        }
        let image = self.image_of(tree).await?;
        self.stack(&image).map(Arc::new)
    }

    async fn run(&self, on: &Tree, step: &RunStep, output: &dyn Output) -> Result<Ran, WorkError> {
        let image = self.image_of(on).await?;
        let mut step = step.clone();
        let turns = self.cache.take(&mut step.caches).await;
        let ended = self.sandboxes.run(&image, &step, output).await?;
        drop(turns);
        let wrote = match ended {
            Ended::Well(changes) => changes,
            Ended::Failed { code, notes } => return Ok(Ran::Failed { code, notes }),
            Ended::Killed(how) => return Ok(Ran::Killed(how)),
        };
        let below = self.stack(&image)?;
        let Changes { files, owners, authorities, until } = wrote;
        let changed = Stack::of(files, owners, self.rights);
        let doing = "cannot make a layer of what a step changed";
        let to = self.scratch()?;
        blocking(doing, move |asker| {
            let diff = Diff {
                changed: &changed,
                below: &below,
                without: &step.without,
                newest: step.newest,
                authorities: authorities.as_deref(),
            };
            let written = diff.write(BufWriter::new(asker.watch(sparse::Writer::new(&to))));
            let written = written.map_err(|error| {
                let is_steps = [ErrorKind::InvalidInput, ErrorKind::FileTooLarge];
                if is_steps.contains(&error.kind()) {
                    return WorkError::Refused(error.to_string());
                }
                WorkError::failed(doing, error)
            })?;
            drop(until);
            Ok(Ran::Changed { layer: to, entries: written.entries })
        })
        .await
    }

    async fn lay(&self, on: &Tree, layer: File) -> Result<Tree, WorkError> {
        let (intake, known, tree) = (self.intake.clone(), self.known.clone(), on.clone());
        blocking("cannot keep a layer", move |asker| {
            let layer = keep::layer(&intake, layer, asker)?;
            let mut tree = tree;
            tree.layers.push(layer);
            keep::image_of(&intake, &known, &tree)?;
            Ok(tree)
        })
        .await
    }

    async fn fetch(&self, url: &str) -> Result<File, WorkError> {
        self.sandboxes.fetch(url, self.scratch()?).await
    }

    fn scratch(&self) -> Result<File, WorkError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(CWD, &self.directory, flags, Mode::RUSR | Mode::WUSR);
        let doing = "cannot make a file for a layer";
        file.map(File::from).map_err(|error| WorkError::failed(doing, error))
    }

    async fn recall(&self, key: &CacheKey) -> Result<Option<Made>, WorkError> {
        let Some(Kept { manifest, made }) = self.cache.find(key) else { return Ok(None) };
        // Memory only; whoever removed it did not know of us.
        let Ok(image) = self.intake.images().by_digest(&manifest) else { return Ok(None) };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(keep::layers_of(&made.tree), image);
        Ok(Some(made))
    }

    async fn remember(&self, key: &CacheKey, made: &Made) -> Result<(), WorkError> {
        // Without layers there is nothing that it would be worth to remember.
        if made.tree.layers.is_empty() {
            return Ok(());
        }
        let manifest = self.image_of(&made.tree).await?.digest;
        let Some(manifest) = manifest else { return Ok(()) };
        let (cache, key) = (self.cache.clone(), key.clone());
        let kept = Kept { manifest, made: made.clone() };
        let doing = "cannot remember a step";
        blocking(doing, move |_| {
            cache.keep(&key, &kept).map_err(|error| WorkError::failed(doing, error))
        })
        .await
    }

    async fn finish(
        &self,
        tree: &Tree,
        configuration: Configuration,
        names: &[Reference],
    ) -> Result<Digest, WorkError> {
        let (intake, tree, names) = (self.intake.clone(), tree.clone(), names.to_vec());
        let work = move |_: &Asker| keep::finish(&intake, &tree, configuration, &names);
        blocking("cannot keep the image", work).await
    }
}

/// Does what waits for a disk where nobody waits for it, and only while somebody wants it.
async fn blocking<T: Send + 'static>(
    doing: &str,
    work: impl FnOnce(&Asker) -> Result<T, WorkError> + Send + 'static,
) -> Result<T, WorkError> {
    let done = asker::blocking(work).await;
    done.map_err(|error| WorkError::failed(doing, error))?
}
