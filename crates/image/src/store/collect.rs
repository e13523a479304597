//! Removing what nothing refers to.

use std::{
    collections::{BTreeSet, HashSet},
    path::Path,
    sync::Arc,
};

use osb_registry::Digest;
use osb_sys::{confined, fs, fs::PathError, tree};

use super::{
    ImageError, Images,
    known::State,
    layout::{Thing, of_file_name},
};

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    pub images: usize,
    pub layers: usize,
    pub blobs: usize,
    pub bytes: u64,
}

impl Images {
    /// Removes images that have no name, except those in `used`, on which sandboxes and snapshots
    /// stand, those that somebody holds, and those that come in. Then removes what no image needs.
    pub fn collect(&self, used: &BTreeSet<Digest>) -> Result<Collected, ImageError> {
        let layout = &self.inner.layout;
        let mut collected = Collected::default();
        // First the images, then their parts: an image that is known is whole at any moment.
        let disk = self.disk();
        let unused = self.state().take_unused(used);
        for image in &unused {
            fs::remove_file(layout.image(image))?;
        }
        drop(disk);
        collected.images = unused.len();
        let unneeded = self.state().take_unneeded();
        for (thing, bytes) in unneeded {
            if self.remove(&thing)? {
                collected.bytes += bytes;
                match thing {
                    Thing::Blob(_) => collected.blobs += 1,
                    Thing::Layer(_) | Thing::Merged(_) => collected.layers += 1,
                }
            }
        }
        self.clear_ingest()?;
        Ok(collected)
    }

    /// Removes a thing that is no longer known, unless it has come again meanwhile.
    fn remove(&self, thing: &Thing) -> Result<bool, PathError> {
        let layout = &self.inner.layout;
        let aside = layout.unfinished();
        let disk = self.disk();
        if self.state().things.contains_key(thing) {
            return Ok(false);
        }
        let moved = fs::put_aside(layout.thing(thing), aside)?;
        self.inner.settler.forget(thing)?;
        drop(disk);
        match (thing, moved) {
            (_, None) => Ok(false),
            (Thing::Blob(_), Some(aside)) => fs::remove_file(aside).map(|()| true),
            (Thing::Layer(_) | Thing::Merged(_), Some(aside)) => self.delete(&aside).map(|()| true),
        }
    }

    /// Deletes a tree of an image's files, reaching nothing else.
    pub(super) fn delete(&self, aside: &Path) -> Result<(), PathError> {
        delete(&self.inner.layout.directory("unfinished"), aside)
    }

    /// Removes parts of blobs that nobody is adding to.
    fn clear_ingest(&self) -> Result<(), PathError> {
        for name in fs::names(self.inner.layout.directory("ingest"))? {
            let Some(digest) = of_file_name(&name) else { continue };
            // Whoever begins with it from here on has to wait for this.
            if self.state().ingesting.insert(digest.clone()) {
                let removed = fs::remove_file(self.inner.layout.ingest(&digest));
                self.state().ingesting.remove(&digest);
                removed?;
            }
        }
        Ok(())
    }
}

/// Deletes a tree in the directory `around`.
pub(super) fn delete(around: &Path, tree: &Path) -> Result<(), PathError> {
    let deleted = confined::run(around, || tree::remove(tree));
    deleted.map_err(|error| PathError::new("remove", tree, error))?
}

impl State {
    /// Takes out the images that nobody needs.
    fn take_unused(&mut self, used: &BTreeSet<Digest>) -> Vec<Digest> {
        let named: HashSet<&Digest> = self.names.values().collect();
        let is_unused = |digest: &&Digest| {
            let is_held = self.held.contains_key(&Thing::Blob((*digest).clone()));
            !named.contains(*digest) && !used.contains(*digest) && !is_held
        };
        let unused: Vec<Digest> = self.images.keys().filter(is_unused).cloned().collect();
        let mut taken = Vec::new();
        for digest in unused {
            // Somebody may be about to make a sandbox of it.
            if self.images.get(&digest).is_some_and(|known| Arc::strong_count(known) == 1) {
                self.images.remove(&digest);
                taken.push(digest);
            }
        }
        taken
    }

    /// Takes out what no image is made of.
    fn take_unneeded(&mut self) -> Vec<(Thing, u64)> {
        let needed: HashSet<Thing> =
            self.images.values().flat_map(|known| known.record.things()).collect();
        let is_unneeded = |thing: &Thing| !needed.contains(thing) && !self.held.contains_key(thing);
        let unneeded: Vec<Thing> =
            self.things.keys().filter(|thing| is_unneeded(thing)).cloned().collect();
        unneeded
            .into_iter()
            .filter_map(|thing| self.things.remove(&thing).map(|bytes| (thing, bytes)))
            .collect()
    }
}
