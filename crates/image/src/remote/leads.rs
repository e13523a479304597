//! To which images lists for several platforms lead, so that the digest of a list is enough to see
//! that all of an image is here.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use osb_core::Chain;
use osb_registry::{Digest, Platform};
use osb_sys::fs;

use crate::{Image, Images};

/// The most lists that are remembered. Each new version of one is another.
const MOST: usize = 1024;

/// Manifests by platform, by the digest of a list.
type Known = BTreeMap<Digest, BTreeMap<String, Digest>>;

#[derive(Debug)]
pub(super) struct Leads {
    path: PathBuf,
    known: Mutex<Known>,
}

impl Leads {
    /// Reads what an earlier process has learnt. What cannot be read is learnt again.
    pub(super) fn read(images: &Images) -> Self {
        let path = images.directory().join("leads.json");
        let known = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Self { path, known: Mutex::new(known.unwrap_or_default()) }
    }

    /// The image that a digest stands for on a platform, if it is here.
    pub(super) fn find(
        &self,
        images: &Images,
        digest: &Digest,
        platform: &Platform,
    ) -> Option<Image> {
        let led = self.lock().get(digest).and_then(|led| led.get(&platform.to_string())).cloned();
        images.by_digest(&led.unwrap_or_else(|| digest.clone())).ok()
    }

    /// Remembers to which image lists lead, and forgets those that lead to nothing any more.
    pub(super) fn add(
        &self,
        images: &Images,
        indexes: &[Digest],
        platform: &Platform,
        manifest: &Digest,
    ) {
        if indexes.is_empty() {
            return;
        }
        let mut known = self.lock();
        for index in indexes {
            let led = known.entry(index.clone()).or_default();
            led.insert(platform.to_string(), manifest.clone());
        }
        known.retain(|_, led| {
            led.retain(|_, manifest| images.by_digest(manifest).is_ok());
            !led.is_empty()
        });
        while known.len() > MOST {
            known.pop_first();
        }
        let written = serde_json::to_vec(&*known).map_err(std::io::Error::from);
        let written = written.map_err(|error| fs::PathError::new("write", &self.path, error));
        let written = written.and_then(|text| fs::write_whole(&self.path, &text, 0o600));
        if let Err(error) = written {
            // The registry is asked once more next time.
            tracing::warn!(error = %Chain(&error), "cannot remember where an image came from");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
