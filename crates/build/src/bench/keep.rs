//! Trees as images of the store.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, Read, Seek, Write},
    sync::{Mutex, PoisonError},
};

use flate2::{Compression, write::GzEncoder};
use osb_image::{Configuration, Image, ImageError, Intake, LayerList, Step};
use osb_registry::{
    Algorithm, Descriptor, Digest, Document, Manifest, Platform, Reference, Verifier, media,
};

use crate::{BaseImage, Layer, Tree, WorkError, asker::Asker};

/// Images by the digests of the layers of their trees.
type Known = Mutex<HashMap<Vec<Digest>, Image>>;

pub(super) fn layers_of(tree: &Tree) -> Vec<Digest> {
    tree.layers.iter().map(|layer| layer.diff_id.clone()).collect()
}

/// The image of a tree: nobody's, but one that sandboxes can stand on.
pub(super) fn image_of(intake: &Intake, known: &Known, tree: &Tree) -> Result<Image, WorkError> {
    let layers = layers_of(tree);
    let find = || known.lock().unwrap_or_else(PoisonError::into_inner).get(&layers).cloned();
    if let Some(image) = find() {
        return Ok(image);
    }
    let Platform { os, architecture, .. } = Platform::host();
    let rootfs = LayerList { kind: "layers".to_owned(), diff_ids: layers.clone() };
    let configuration = Configuration { os, architecture, rootfs, ..Configuration::default() };
    let manifest = put(intake, tree, &configuration)?;
    let image = intake.unpack(&manifest, |_| ()).map_err(refused)?;
    known.lock().unwrap_or_else(PoisonError::into_inner).insert(layers, image.clone());
    Ok(image)
}

/// What an image that is here is made of. Steps do not stand on it, but on one that has its layers and
/// says nothing about what programs begin with: the Dockerfile has said that.
pub(super) fn base(intake: &Intake, digest: &Digest) -> Result<BaseImage, WorkError> {
    let doing = "cannot read the image to build on";
    let content = intake.document(digest).map_err(refused)?;
    let document = Document::parse(&content, None);
    let document = document.map_err(|error| WorkError::failed(doing, error))?;
    let Document::Manifest(manifest) = document else {
        return Err(WorkError::Refused("the image is a list of images: choose one".to_owned()));
    };
    let content = intake.document(&manifest.config.digest).map_err(refused)?;
    let configuration: Configuration =
        serde_json::from_slice(&content).map_err(|error| WorkError::failed(doing, error))?;
    let diff_ids = configuration.rootfs.diff_ids.iter().cloned();
    let layers = manifest.layers.into_iter().zip(diff_ids);
    let layers = layers.map(|(blob, diff_id)| Layer { blob, diff_id }).collect();
    Ok(BaseImage { tree: Tree { layers }, configuration })
}

/// Keeps an archive, compressed.
pub(super) fn layer(intake: &Intake, mut archive: File, asker: &Asker) -> Result<Layer, WorkError> {
    let doing = "cannot keep a layer";
    let failed = |error: io::Error| WorkError::failed(doing, error);
    archive.rewind().map_err(failed)?;
    let draft = intake.draft().map_err(refused)?;
    // Steps wait for it, and what is gained by more of it is little.
    let mut packed = GzEncoder::new(draft, Compression::fast());
    let mut verifier = Verifier::new(Algorithm::Sha256);
    let mut buffer = vec![0; 1 << 20];
    loop {
        asker.check().map_err(failed)?;
        let count = archive.read(&mut buffer).map_err(failed)?;
        let Some(content) = buffer.get(..count).filter(|content| !content.is_empty()) else {
            break;
        };
        verifier.update(content);
        packed.write_all(content).map_err(failed)?;
    }
    let draft = packed.finish().map_err(failed)?;
    let blob = draft.finish(media::OCI_LAYER_GZIP).map_err(refused)?;
    Ok(Layer { blob, diff_id: verifier.finish() })
}

/// Makes a tree an image with names.
pub(super) fn finish(
    intake: &Intake,
    tree: &Tree,
    mut configuration: Configuration,
    names: &[Reference],
) -> Result<Digest, WorkError> {
    let diff_ids = layers_of(tree);
    // Some who read images want a line for each layer.
    let told = configuration.history.iter().filter(|step| !step.empty_layer).count();
    let missing = diff_ids.len().saturating_sub(told);
    let lines = (0..missing).map(|_| Step::default());
    configuration.history.splice(0..0, lines);
    configuration.rootfs = LayerList { kind: "layers".to_owned(), diff_ids };
    let manifest = put(intake, tree, &configuration)?;
    intake.unpack(&manifest, |_| ()).map_err(refused)?;
    for name in names {
        intake.name(name, &manifest).map_err(refused)?;
    }
    Ok(manifest)
}

/// Writes what describes an image of a tree.
fn put(intake: &Intake, tree: &Tree, configuration: &Configuration) -> Result<Digest, WorkError> {
    let doing = "cannot describe an image";
    let text =
        |value: serde_json::Result<Vec<u8>>| value.map_err(|error| WorkError::failed(doing, error));
    let configuration = text(serde_json::to_vec(configuration))?;
    let config = intake.put(media::OCI_CONFIG, &configuration).map_err(refused)?;
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(media::OCI_MANIFEST.to_owned()),
        artifact_type: None,
        config,
        layers: tree.layers.iter().map(|layer| as_oci(&layer.blob)).collect(),
        annotations: BTreeMap::new(),
    };
    let manifest = text(serde_json::to_vec(&manifest))?;
    Ok(intake.put(media::OCI_MANIFEST, &manifest).map_err(refused)?.digest)
}

/// A layer in the words of OCI, whoever made it: manifests that mix both are not read everywhere.
fn as_oci(blob: &Descriptor) -> Descriptor {
    let media_type = match blob.media_type.as_str() {
        media::DOCKER_LAYER => media::OCI_LAYER,
        media::DOCKER_LAYER_GZIP => media::OCI_LAYER_GZIP,
        other => other,
    };
    Descriptor { media_type: media_type.to_owned(), ..blob.clone() }
}

/// What the store does not take is the image's fault, unless it is the disk's.
fn refused(error: ImageError) -> WorkError {
    let is_images = matches!(
        error,
        ImageError::Refused(_) | ImageError::Manifest(_) | ImageError::Layer { .. }
    );
    if is_images {
        return WorkError::Refused(osb_core::Chain(&error).to_string());
    }
    WorkError::failed("cannot use the store of images", error)
}
