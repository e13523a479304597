//! Which image has which name.

use std::{collections::BTreeMap, sync::Arc};

use osb_registry::{Digest, Reference};
use osb_sys::fs;

use super::{
    ImageError, Images,
    known::{Known, Record, key},
};
use crate::Configuration;

impl Images {
    /// Gives an image a name, and takes it from the one that had it.
    pub(super) fn name(&self, name: &Reference, manifest: &Digest) -> Result<(), ImageError> {
        let disk = self.disk();
        let mut names = {
            let state = self.state();
            if state.image(manifest).is_none() {
                let what = "image";
                return Err(ImageError::Missing { what, digest: manifest.clone() });
            }
            state.names.clone()
        };
        names.insert(key(name), manifest.clone());
        self.keep_names(&names)?;
        self.state().names = names;
        drop(disk);
        self.inner.renamed.send_replace(());
        Ok(())
    }

    /// Takes a name away. Answers whether anything had it. The image itself goes with the next
    /// collection that finds no use for it.
    pub fn unname(&self, name: &Reference) -> Result<bool, ImageError> {
        let disk = self.disk();
        let mut names = self.state().names.clone();
        let was_there = names.remove(&key(name)).is_some();
        if was_there {
            self.keep_names(&names)?;
            self.state().names = names;
        }
        drop(disk);
        if was_there {
            self.inner.renamed.send_replace(());
        }
        Ok(was_there)
    }

    /// Writes the names down. The caller holds the lock of the disk.
    pub(super) fn keep_names(&self, names: &BTreeMap<String, Digest>) -> Result<(), ImageError> {
        let text = serde_json::to_vec_pretty(names);
        let text = text.map_err(|error| ImageError::Refused(error.to_string()))?;
        Ok(fs::write_whole(self.inner.layout.names(), &text, 0o600)?)
    }

    /// Makes an image one that is known, now that everything of it is here.
    pub(super) fn know(
        &self,
        record: Record,
        configuration: &Configuration,
    ) -> Result<Arc<Known>, ImageError> {
        let path = self.inner.layout.image(&record.manifest);
        let text = serde_json::to_vec(&record);
        let text = text.map_err(|error| ImageError::Refused(error.to_string()))?;
        let _disk = self.disk();
        fs::write_whole(&path, &text, 0o600)?;
        let known = Arc::new(Known {
            rootfs: record.rootfs(&self.inner.layout),
            config: Arc::new(configuration.image_config()),
            since: fs::changed(&path)?.map(|(since, _)| since),
            record,
        });
        let manifest = known.record.manifest.clone();
        Ok(Arc::clone(self.state().images.entry(manifest).or_insert(known)))
    }
}
