//! Images of this machine, as sandboxes ask for them: here, or to be had from a registry.

mod pulls;

use std::{collections::BTreeSet, sync::Arc};

use osb_build::Cache;
use osb_core::{ImageName, SandboxSpec};
use osb_image::{Image, ImageConfig, ImageError, Images, Remote};
use osb_registry::{Digest, Login, Platform, Reference};
use osb_sys::fs::PathError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use osb_core::agent::IDLE;

pub(crate) use self::pulls::{PullCounts, Pulling, Pulls};
use crate::error::ApiError;

/// How many archives come and go at a time. Each has a thread.
const ARCHIVES: usize = 8;

#[derive(Debug)]
pub(crate) struct Library {
    remote: Remote,
    /// What builds keep for the next ones.
    steps: Option<Cache>,
    pulls: Pulls,
    /// Whoever removes what nobody needs holds this: one at a time is enough.
    pub(crate) collecting: tokio::sync::Mutex<()>,
    /// Whoever sends or takes an archive has a place.
    archives: Arc<Semaphore>,
}

/// Where an image is.
#[derive(Debug)]
pub(crate) enum Whereabouts {
    Here(Image),
    /// At the registry of this name.
    Away(Reference),
}

impl Library {
    pub(crate) fn new(remote: Remote, steps: Option<Cache>) -> Self {
        Self {
            remote,
            steps,
            pulls: Pulls::default(),
            collecting: tokio::sync::Mutex::default(),
            archives: Arc::new(Semaphore::new(ARCHIVES)),
        }
    }

    pub(crate) fn images(&self) -> &Images {
        self.remote.images()
    }

    /// The images that builds keep for the next ones. It reads a disk.
    pub(crate) fn kept_by_builds(&self) -> Result<BTreeSet<Digest>, PathError> {
        self.steps.as_ref().map_or_else(|| Ok(BTreeSet::new()), Cache::used)
    }

    pub(crate) fn pulls(&self) -> &Pulls {
        &self.pulls
    }

    /// A place for an archive that comes or goes.
    pub(crate) fn archive(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.archives).try_acquire_owned().map_err(|_| {
            ApiError::busy(format!(
                "{ARCHIVES} archives are being imported and exported already; try again later"
            ))
        })
    }

    /// Where the image of a sandbox is: the very one that it was asked for with, if that is known.
    pub(crate) fn seek(&self, spec: &SandboxSpec) -> Result<Whereabouts, ImageError> {
        if let Some(digest) = &spec.image_digest {
            let pinned = self.images().find(&ImageName::new(digest.as_str()));
            return pinned.map(Whereabouts::Here);
        }
        let unknown = match self.images().find(&spec.image) {
            Ok(image) => return Ok(Whereabouts::Here(image)),
            Err(error @ ImageError::Unknown(_)) => error,
            Err(error) => return Err(error),
        };
        let target = self.target(spec.image.as_str());
        let target = target.unwrap_or_else(|| spec.image.as_str());
        // The digest of a manifest does not say where it is.
        if Digest::parse(target).is_ok() {
            return Err(unknown);
        }
        Reference::parse(target).map(Whereabouts::Away).map_err(|_| unknown)
    }

    /// Begins to get an image for this machine, or joins those who wait for it. A login is for the
    /// registry that its owner has named, and not for the one that an alias leads to.
    pub(crate) fn pull(
        &self,
        asked: &ImageName,
        reference: &Reference,
        login: Option<Login>,
        platform: &Platform,
    ) -> Pulling {
        let named = Reference::parse(asked.as_str()).ok();
        let is_theirs = named.is_some_and(|named| named.registry() == reference.registry());
        let login = login.filter(|_| is_theirs);
        self.pulls.follow(self.remote.pull(reference, login, platform))
    }

    /// What the operator says that a name stands for.
    fn target(&self, name: &str) -> Option<&str> {
        let asked = Reference::parse(name).ok();
        let aliases = &self.images().settings().aliases;
        let mut aliases = aliases.iter();
        let found = aliases.find(|(alias, _)| {
            *alias == name || (asked.is_some() && Reference::parse(alias).ok() == asked)
        });
        found.map(|(_, target)| target.as_str())
    }

    /// The images that these names stand for.
    pub(crate) fn digests<'a>(
        &self,
        names: impl Iterator<Item = &'a ImageName>,
    ) -> BTreeSet<Digest> {
        names.filter_map(|name| self.images().find(name).ok()?.digest).collect()
    }
}

/// What runs in a sandbox whose request does not say.
pub(crate) fn entrypoint(config: &ImageConfig) -> Vec<String> {
    let own: Vec<String> = config.entrypoint.iter().chain(&config.cmd).cloned().collect();
    if own.is_empty() { IDLE.map(str::to_owned).to_vec() } else { own }
}
