//! What `docker save` writes: `manifest.json`, which names a configuration and layers by their paths
//! in the archive.

use std::{collections::HashMap, fs::File};

use osb_registry::{Descriptor, Reference, media};
use serde::Deserialize;

use super::{
    Found, manifest, media_type,
    scan::{self, Scan},
};
use crate::{ImageError, Intake, archive::Kind, compression::Compression};

/// The longest configuration.
const LARGEST: u64 = 4 << 20;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// The images of the archive, if it is such a one.
pub(super) fn list(scan: &Scan) -> Option<Vec<Saved>> {
    serde_json::from_slice(scan.document("manifest.json")?).ok()
}

/// The names that the archive has for an image with this configuration.
pub(super) fn names(scan: &Scan, config: &str) -> Vec<Reference> {
    let all = list(scan).unwrap_or_default();
    let named = all.iter().filter(|saved| saved.config.contains(config));
    named.flat_map(Saved::names).collect()
}

impl Saved {
    fn names(&self) -> Vec<Reference> {
        let tags = self.repo_tags.iter().flatten();
        tags.filter_map(|tag| Reference::parse(tag).ok()).collect()
    }
}

pub(super) fn import(
    intake: &Intake,
    list: &[Saved],
    scan: &Scan,
    archive: File,
) -> Result<Vec<Found>, ImageError> {
    let limits = &intake.images().settings().limits;
    if list.iter().any(|saved| saved.layers.len() > limits.layers) || list.len() > limits.layers {
        let most = limits.layers;
        return Err(ImageError::Refused(format!("it has more than {most} layers or images")));
    }
    let layers = list.iter().flat_map(|saved| &saved.layers).map(|path| (path, Part::Layer));
    let configs = list.iter().map(|saved| (&saved.config, Part::Config));
    let wanted = configs.chain(layers).map(|(path, part)| (scan.resolve(path), part)).collect();
    let blobs = blobs(intake, &wanted, archive)?;
    let blob = |path: &String| {
        let found = blobs.get(&scan.resolve(path)).cloned();
        found.ok_or_else(|| ImageError::Refused(format!("the archive names {path:?} and lacks it")))
    };
    let mut found = Vec::new();
    for saved in list {
        let layers: Result<_, _> = saved.layers.iter().map(blob).collect();
        found.push(manifest(intake, blob(&saved.config)?, layers?, saved.names())?);
    }
    Ok(found)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Config,
    Layer,
}

/// Stores the files with these paths.
fn blobs(
    intake: &Intake,
    wanted: &HashMap<String, Part>,
    archive: File,
) -> Result<HashMap<String, Descriptor>, ImageError> {
    let mut blobs = HashMap::new();
    let mut archive = scan::read(archive)?;
    while let Some(entry) = archive.next().map_err(scan::refused)? {
        let Some(path) = scan::path(&entry).filter(|_| entry.kind == Kind::File) else { continue };
        let Some(part) = wanted.get(&path) else { continue };
        let blob = match part {
            Part::Config => {
                let content = archive.content(LARGEST).map_err(scan::refused)?;
                intake.put(media::OCI_CONFIG, &content)?
            }
            Part::Layer => {
                let mut draft = intake.draft()?;
                loop {
                    let chunk = archive.chunk().map_err(scan::refused)?;
                    if chunk.is_empty() {
                        break;
                    }
                    draft.add(chunk)?;
                    let count = chunk.len();
                    archive.consume(count);
                }
                let compression = Compression::of_file(&mut draft.reopen()?);
                draft.finish(media_type(compression.map_err(ImageError::Read)?))?
            }
        };
        blobs.insert(path, blob);
    }
    Ok(blobs)
}
