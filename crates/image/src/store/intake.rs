//! Taking images in.

use std::{
    collections::BTreeSet,
    fs::File,
    io::Read,
    sync::{Mutex, PoisonError},
};

use osb_core::ImageName;
use osb_registry::{Descriptor, Digest, Document, Manifest, Reference};
use osb_sys::fs;

use super::{
    Image, ImageError, Images, Ingest,
    known::{Record, RecordedLayer},
    layers::{Below, Chain, Progress},
    layout::Thing,
};
use crate::Configuration;

/// The longest manifest or configuration.
const LARGEST_DOCUMENT: u64 = 4 << 20;

/// Work on images that are not complete yet: a pull, an import, a build. Whatever it asks for or
/// makes is not collected before it is dropped.
#[derive(Debug)]
pub struct Intake {
    images: Images,
    held: Mutex<BTreeSet<Thing>>,
}

impl Intake {
    pub(super) fn new(images: Images) -> Self {
        Self { images, held: Mutex::default() }
    }

    pub fn images(&self) -> &Images {
        &self.images
    }

    /// Whether a blob is here. It stays.
    pub fn has(&self, digest: &Digest) -> bool {
        let thing = Thing::Blob(digest.clone());
        self.hold(&thing);
        self.images.state().things.contains_key(&thing)
    }

    /// Opens a blob.
    pub fn blob(&self, digest: &Digest) -> Result<File, ImageError> {
        self.hold(&Thing::Blob(digest.clone()));
        self.images.blob(digest)?.ok_or_else(|| missing("blob", digest))
    }

    /// A blob that is small: a manifest or a configuration.
    pub fn document(&self, digest: &Digest) -> Result<Vec<u8>, ImageError> {
        let mut content = Vec::new();
        let read = self.blob(digest)?.take(LARGEST_DOCUMENT + 1).read_to_end(&mut content);
        let path = self.images.inner.layout.thing(&Thing::Blob(digest.clone()));
        read.map_err(|error| fs::PathError::new("read", path, error))?;
        if content.len() as u64 > LARGEST_DOCUMENT {
            return Err(ImageError::Refused(format!(
                "{digest} is longer than the {LARGEST_DOCUMENT} bytes that such a document may have"
            )));
        }
        Ok(content)
    }

    /// Begins to write a blob that is not here, or goes on with it.
    pub fn begin_blob(&self, wanted: &Descriptor) -> Result<Ingest, ImageError> {
        self.hold(&Thing::Blob(wanted.digest.clone()));
        Ingest::begin(self.images.clone(), wanted)
    }

    /// Writes a blob that is at hand.
    pub fn put(&self, media_type: &str, content: &[u8]) -> Result<Descriptor, ImageError> {
        let descriptor = Descriptor::of(media_type, content);
        if !self.has(&descriptor.digest) {
            let mut ingest = Ingest::fresh(self.images.clone(), &descriptor)?;
            ingest.add(content)?;
            ingest.finish()?;
        }
        Ok(descriptor)
    }

    /// Unpacks the layers of an image whose blobs are all here, and makes it one that is known. What
    /// is unpacked already is not unpacked again.
    pub fn unpack(
        &self,
        manifest: &Digest,
        progress: impl Fn(Progress),
    ) -> Result<Image, ImageError> {
        let name = ImageName::new(manifest.as_str());
        if let Some(known) = self.images.state().image(manifest) {
            return Ok(Image::new(name, known));
        }
        let (manifest_content, configuration) = self.describe(manifest)?;
        let diff_ids = &configuration.rootfs.diff_ids;
        let limits = &self.images.inner.settings.limits;
        if manifest_content.layers.len() != diff_ids.len() {
            return Err(ImageError::Refused(format!(
                "its manifest has {} layers and its configuration {}",
                manifest_content.layers.len(),
                diff_ids.len()
            )));
        }
        if diff_ids.len() > limits.layers {
            return Err(ImageError::Refused(format!(
                "it has {} layers, and {} is the limit here",
                diff_ids.len(),
                limits.layers
            )));
        }
        // Those whose layers are here already, too: an image can be pushed as it was pulled.
        if let Some(blob) = manifest_content.layers.iter().find(|blob| !self.has(&blob.digest)) {
            return Err(missing("layer", &blob.digest));
        }
        let chain = Chain::new(diff_ids);
        for layer in chain.things() {
            self.hold(&layer);
        }
        let mut layers: Vec<RecordedLayer> = Vec::new();
        for (number, blob) in manifest_content.layers.iter().enumerate() {
            progress(Progress { layer: number, layers: diff_ids.len() });
            let bytes = self.images.layer(&chain, number, &blob.digest, Below::Now)?;
            let sum: u64 = layers.iter().map(|layer| layer.bytes).sum();
            if sum.saturating_add(bytes) > limits.image {
                return Err(ImageError::Refused(format!(
                    "its layers unpack to more than {} bytes, which is the limit here",
                    limits.image
                )));
            }
            let (digest, size) = (blob.digest.clone(), blob.size);
            let Some(chain) = chain.id(number) else { continue };
            layers.push(RecordedLayer { blob: digest, size, chain: chain.clone(), bytes });
        }
        let merged = self.merge(&chain)?;
        let config = manifest_content.config.digest.clone();
        let record = Record { manifest: manifest.clone(), config, layers, merged };
        let known = self.images.know(record, &configuration)?;
        Ok(Image::new(name, &known))
    }

    /// Unpacks one layer of an image whose other parts may still be missing; its blob is here. It is
    /// done when all layers below it are: `wait` waits for them, and says whether they are. Answers
    /// with its size.
    pub(crate) fn unpack_layer(
        &self,
        diff_ids: &[Digest],
        number: usize,
        blob: &Digest,
        wait: impl Fn() -> bool,
    ) -> Result<u64, ImageError> {
        let chain = Chain::new(diff_ids);
        for layer in chain.things() {
            self.hold(&layer);
        }
        let below = if number == 0 { Below::Now } else { Below::Then(&wait) };
        self.images.layer(&chain, number, blob, below)
    }

    /// Gives an image a name, and takes it from the one that had it. A digest in the name must be
    /// the image's own.
    pub fn name(&self, name: &Reference, manifest: &Digest) -> Result<(), ImageError> {
        if name.digest().is_some_and(|digest| digest != manifest) {
            return Err(ImageError::Refused(format!(
                "{name} is the name of other content: leave out @ and what follows"
            )));
        }
        if name.familiar() == "host:latest" {
            return Err(ImageError::Refused(
                "host is the name of the programs of this machine, and of no image".to_owned(),
            ));
        }
        self.images.name(name, manifest)
    }

    /// The same for what a registry has just said: it may call a list by a digest from which the
    /// image was chosen.
    pub(crate) fn name_as_pulled(
        &self,
        name: &Reference,
        manifest: &Digest,
    ) -> Result<(), ImageError> {
        self.images.name(name, manifest)
    }

    fn describe(&self, manifest: &Digest) -> Result<(Manifest, Configuration), ImageError> {
        let content = self.document(manifest)?;
        let document = Document::parse(&content, None).map_err(ImageError::Manifest)?;
        let Document::Manifest(manifest) = document else {
            return Err(ImageError::Refused(
                "it is a list of images for several platforms: choose one".to_owned(),
            ));
        };
        let configuration = serde_json::from_slice(&self.document(&manifest.config.digest)?)
            .map_err(|error| ImageError::Refused(format!("its configuration is wrong: {error}")))?;
        Ok((*manifest, configuration))
    }

    pub(super) fn hold(&self, thing: &Thing) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.insert(thing.clone()) {
            *self.images.state().held.entry(thing.clone()).or_default() += 1;
        }
    }
}

pub(super) fn missing(what: &'static str, digest: &Digest) -> ImageError {
    ImageError::Missing { what, digest: digest.clone() }
}

impl Drop for Intake {
    fn drop(&mut self) {
        let held = std::mem::take(self.held.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut state = self.images.state();
        for thing in held {
            if let Some(count) = state.held.get_mut(&thing) {
                *count -= 1;
                if *count == 0 {
                    state.held.remove(&thing);
                }
            }
        }
    }
}
