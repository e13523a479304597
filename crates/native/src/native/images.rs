//! Which image a sandbox stands on, and what programs in it begin with.

use std::{io, sync::Arc};

use osb_core::{ImageDigest, RuntimeError, SandboxSpec};
use osb_image::{Image, ImageError, Rootfs, Stack};
use osb_registry::Digest;

use super::Native;
use crate::{
    beginning::{Beginning, Unfit},
    sandbox::State,
};

impl Native {
    /// The image that a spec asks for: the very one, if it says which, or the one that has its name now.
    pub(super) fn find_image(&self, spec: &SandboxSpec) -> Result<Image, RuntimeError> {
        let unknown = || RuntimeError::UnknownImage(spec.image.clone());
        let images = &self.inner.images;
        let found = match &spec.image_digest {
            Some(digest) => {
                images.by_digest(&Digest::parse(digest.as_str()).map_err(|_| unknown())?)
            }
            None => images.find(&spec.image),
        };
        found.map_err(|error| {
            if let ImageError::Unknown(_) = error {
                unknown()
            } else {
                RuntimeError::failed("cannot find the image", error)
            }
        })
    }

    /// The image of a sandbox that an earlier server made, so that it stays as long as the sandbox.
    pub(super) fn recall_image(&self, state: &State) -> Option<Image> {
        let digest = state.image.as_ref()?;
        let found = self.inner.images.by_digest(&Digest::parse(digest.as_str()).ok()?);
        if found.is_err() {
            let sandbox_id = state.spec.id;
            tracing::warn!(%sandbox_id, image = digest.as_str(), "the image of a sandbox is not here any more");
        }
        found.ok()
    }

    /// What the root of a sandbox of this image is made of.
    pub(super) fn ground(&self, image: &Image) -> Rootfs {
        let mut rootfs = image.rootfs.clone();
        if image.digest.is_some() {
            rootfs.layers.insert(0, self.inner.images.etc().to_owned());
        }
        rootfs
    }

    /// What programs begin with in a sandbox of this image whose root is made of that.
    pub(super) fn beginning(
        &self,
        image: &Image,
        rootfs: &Rootfs,
    ) -> Result<Arc<Beginning>, RuntimeError> {
        let rights = self.inner.rights;
        let files = || {
            Stack::open(&rootfs.layers, rights.ids_of_layers(), rights).map_err(io::Error::other)
        };
        Beginning::of(&image.config, files).map(Arc::new).map_err(|unfit| match unfit {
            Unfit::Image(why) => RuntimeError::Invalid(why),
            Unfit::Look(_) => RuntimeError::failed("cannot look into the image", unfit),
        })
    }
}

/// The name that the content of an image gives it.
pub(super) fn digest(image: &Image) -> Option<ImageDigest> {
    image.digest.as_ref().map(|digest| ImageDigest::new(digest.as_str()))
}
