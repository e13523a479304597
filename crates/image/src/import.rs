//! Images from archives: what `docker save` writes, layouts of the OCI, and root file systems.

mod docker;
mod layout;
mod scan;

use std::{io::Read, path::Path};

use osb_registry::{Descriptor, Digest, Manifest, Platform, Reference, media};

use self::scan::Scan;
use crate::{Configuration, ImageError, Images, Intake, LayerList, compression::Compression};

/// An image that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub digest: Digest,
    pub names: Vec<Reference>,
}

/// An image whose blobs are here, and the names that the archive has for it.
#[derive(Debug)]
struct Found {
    manifest: Digest,
    names: Vec<Reference>,
}

impl Images {
    /// Takes in the images of an archive, which may be compressed: one that `docker save` wrote, a
    /// layout of the OCI, or otherwise a root file system. Images get `name`, or the names that the
    /// archive has for them.
    pub fn import(
        &self,
        from: impl Read,
        name: Option<&Reference>,
    ) -> Result<Vec<Imported>, ImageError> {
        let intake = self.intake();
        let limits = &self.settings().limits;
        let mut draft = intake.draft()?;
        draft.fill(from, limits.archive)?;
        let scan = Scan::of(draft.reopen()?, limits)?;
        let found = if scan.is_layout() {
            layout::import(&intake, &scan, draft.reopen()?)?
        } else if let Some(list) = docker::list(&scan) {
            docker::import(&intake, &list, &scan, draft.reopen()?)?
        } else {
            let compression = Compression::of_file(&mut draft.reopen()?);
            let media_type = media_type(compression.map_err(ImageError::Read)?);
            let layer = draft.finish(media_type)?;
            return finish(&intake, vec![root_file_system(&intake, layer, scan.digest)?], name);
        };
        finish(&intake, found, name)
    }

    /// Takes in the images of a directory that is a layout of the OCI.
    pub fn import_directory(
        &self,
        directory: &Path,
        name: Option<&Reference>,
    ) -> Result<Vec<Imported>, ImageError> {
        let intake = self.intake();
        let found = layout::import_directory(&intake, directory)?;
        finish(&intake, found, name)
    }
}

/// Unpacks the images, and names them.
fn finish(
    intake: &Intake,
    found: Vec<Found>,
    name: Option<&Reference>,
) -> Result<Vec<Imported>, ImageError> {
    if found.is_empty() {
        let wanted = Platform::host();
        return Err(ImageError::Refused(format!("the archive has no image for {wanted}")));
    }
    if found.len() > 1 && name.is_some() {
        return Err(ImageError::Refused(format!(
            "the archive has {} images, and one name is for one of them: leave it out",
            found.len()
        )));
    }
    let mut imported = Vec::new();
    for image in found {
        intake.unpack(&image.manifest, |_| ())?;
        let is_its =
            |name: &Reference| name.digest().is_none_or(|digest| *digest == image.manifest);
        // Whoever packed the archive may call it whatever they like.
        let own = || image.names.iter().filter(|name| is_its(name)).cloned().collect();
        let names: Vec<Reference> = name.map_or_else(own, |name| vec![name.clone()]);
        for name in &names {
            intake.name(name, &image.manifest)?;
        }
        imported.push(Imported { digest: image.manifest, names });
    }
    Ok(imported)
}

/// An image of one layer that says nothing about itself.
fn root_file_system(
    intake: &Intake,
    layer: Descriptor,
    diff_id: Digest,
) -> Result<Found, ImageError> {
    let platform = Platform::host();
    let configuration = Configuration {
        architecture: platform.architecture,
        os: platform.os,
        rootfs: LayerList { kind: "layers".to_owned(), diff_ids: vec![diff_id] },
        ..Configuration::default()
    };
    let text = serde_json::to_vec(&configuration).map_err(|error| wrong(&error))?;
    let config = intake.put(media::OCI_CONFIG, &text)?;
    manifest(intake, config, vec![layer], Vec::new())
}

/// Writes a manifest for blobs that had none.
fn manifest(
    intake: &Intake,
    config: Descriptor,
    layers: Vec<Descriptor>,
    names: Vec<Reference>,
) -> Result<Found, ImageError> {
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(media::OCI_MANIFEST.to_owned()),
        artifact_type: None,
        config,
        layers,
        annotations: std::collections::BTreeMap::new(),
    };
    let text = serde_json::to_vec(&manifest).map_err(|error| wrong(&error))?;
    let manifest = intake.put(media::OCI_MANIFEST, &text)?;
    Ok(Found { manifest: manifest.digest, names })
}

fn media_type(compression: Compression) -> &'static str {
    match compression {
        Compression::None => media::OCI_LAYER,
        Compression::Gzip => media::OCI_LAYER_GZIP,
        Compression::Zstd => media::OCI_LAYER_ZSTD,
    }
}

fn wrong(error: &serde_json::Error) -> ImageError {
    ImageError::Refused(format!("a document in the archive is wrong: {error}"))
}

#[cfg(test)]
mod tests;
