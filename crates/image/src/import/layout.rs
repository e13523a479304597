//! Layouts of the OCI: blobs by their digests, and an index of images.

use std::{fs::File, io::Read, path::Path};

use osb_registry::{Descriptor, Digest, Document, Index, Platform, Reference, media};
use osb_sys::fs;

use super::{
    Found, docker,
    scan::{self, Scan},
    wrong,
};
use crate::{ImageError, Intake, archive::Kind};

/// How people's names for images are noted in an index: as a whole name, or as a tag.
const WHOLE_NAME: &str = "io.containerd.image.name";
const NAME: &str = "org.opencontainers.image.ref.name";
/// How many indexes may be in each other.
const DEEPEST: usize = 4;
const LARGEST: usize = 4 << 20;

pub(super) fn import(
    intake: &Intake,
    scan: &Scan,
    archive: File,
) -> Result<Vec<Found>, ImageError> {
    let mut archive = scan::read(archive)?;
    while let Some(entry) = archive.next().map_err(scan::refused)? {
        let Some(path) = scan::path(&entry).filter(|_| entry.kind == Kind::File) else { continue };
        let Some(digest) = of_path(&path) else { continue };
        if intake.has(&digest) {
            continue;
        }
        let mut ingest = intake.begin_blob(&Descriptor::new("", digest, entry.size))?;
        ingest.restart()?;
        loop {
            let chunk = archive.chunk().map_err(scan::refused)?;
            if chunk.is_empty() {
                break;
            }
            ingest.add(chunk)?;
            let count = chunk.len();
            archive.consume(count);
        }
        ingest.finish()?;
    }
    let index = scan.document("index.json").unwrap_or_default();
    let mut found = images(intake, index)?;
    for (image, config) in &mut found {
        // What `docker save` writes has names beside the index only.
        if image.names.is_empty() {
            image.names = docker::names(scan, config.hex());
        }
    }
    Ok(found.into_iter().map(|(image, _)| image).collect())
}

/// Blobs are taken as they are needed: a directory may have those of many images.
pub(super) fn import_directory(
    intake: &Intake,
    directory: &Path,
) -> Result<Vec<Found>, ImageError> {
    let index = osb_sys::beneath::read(directory, Path::new("index.json"), LARGEST)?;
    let blobs = directory.join("blobs");
    for algorithm in fs::names(&blobs)? {
        for hex in fs::names(blobs.join(&algorithm))? {
            let Ok(digest) = Digest::parse(&format!("{algorithm}:{hex}")) else { continue };
            if intake.has(&digest) {
                continue;
            }
            let path = blobs.join(&algorithm).join(&hex);
            // Opening a pipe would wait for somebody to write to it.
            let metadata = path.symlink_metadata().ok().filter(std::fs::Metadata::is_file);
            let Some(size) = metadata.map(|metadata| metadata.len()) else { continue };
            let mut ingest = intake.begin_blob(&Descriptor::new("", digest, size))?;
            ingest.restart()?;
            let mut from = fs::open(&path)?.take(size);
            std::io::copy(&mut from, &mut ingest).map_err(ImageError::Read)?;
            ingest.finish()?;
        }
    }
    Ok(images(intake, &index)?.into_iter().map(|(image, _)| image).collect())
}

/// `blobs/sha256/<hex>`.
fn of_path(path: &str) -> Option<Digest> {
    let (algorithm, hex) = path.strip_prefix("blobs/")?.split_once('/')?;
    Digest::parse(&format!("{algorithm}:{hex}")).ok()
}

/// The images of an index for this machine, each with its configuration. Those that have one name
/// are one image for several platforms.
fn images(intake: &Intake, index: &[u8]) -> Result<Vec<(Found, Digest)>, ImageError> {
    let index: Index = serde_json::from_slice(index).map_err(|error| wrong(&error))?;
    let mut found: Vec<(Found, Digest)> = Vec::new();
    let mut by_name: Vec<(Option<String>, Vec<Descriptor>)> = Vec::new();
    for descriptor in index.manifests {
        let name = name(&descriptor);
        match by_name.iter_mut().find(|(other, _)| *other == name) {
            Some((_, descriptors)) => descriptors.push(descriptor),
            None => by_name.push((name, vec![descriptor])),
        }
    }
    for (name, descriptors) in by_name {
        let names: Vec<_> = name.iter().filter_map(|name| Reference::parse(name).ok()).collect();
        for descriptor in choose(descriptors) {
            let Some((manifest, config)) = resolve(intake, descriptor, 0)? else { continue };
            match found.iter_mut().find(|(other, _)| other.manifest == manifest) {
                Some((other, _)) => other.names.extend(names.clone()),
                None => found.push((Found { manifest, names: names.clone() }, config)),
            }
        }
    }
    Ok(found)
}

fn name(descriptor: &Descriptor) -> Option<String> {
    let said = |key: &str| descriptor.annotations.get(key).cloned();
    // A tag alone names nothing.
    let whole = |name: &String| name.contains(['/', ':']);
    said(WHOLE_NAME).or_else(|| said(NAME).filter(whole))
}

/// Of several images for platforms that are said the one for this machine; otherwise all.
fn choose(descriptors: Vec<Descriptor>) -> Vec<Descriptor> {
    let said = |descriptor: &&Descriptor| descriptor.platform.is_some();
    if descriptors.len() < 2 || !descriptors.iter().all(|descriptor| said(&descriptor)) {
        return descriptors;
    }
    let index = Index {
        schema_version: 2,
        media_type: None,
        manifests: descriptors,
        annotations: std::collections::BTreeMap::new(),
    };
    index.choose(&Platform::host()).cloned().into_iter().collect()
}

/// The manifest that a descriptor leads to on this machine, and its configuration.
fn resolve(
    intake: &Intake,
    descriptor: Descriptor,
    depth: usize,
) -> Result<Option<(Digest, Digest)>, ImageError> {
    let content = intake.document(&descriptor.digest)?;
    let said = Some(descriptor.media_type.as_str()).filter(|said| media::MANIFESTS.contains(said));
    match Document::parse(&content, said).map_err(ImageError::Manifest)? {
        Document::Manifest(manifest) => Ok(Some((descriptor.digest, manifest.config.digest))),
        Document::Index(_) if depth == DEEPEST => {
            Err(ImageError::Refused("its index is in too many others".to_owned()))
        }
        Document::Index(index) => match index.choose(&Platform::host()) {
            Some(chosen) => resolve(intake, chosen.clone(), depth + 1),
            None => Ok(None),
        },
    }
}
