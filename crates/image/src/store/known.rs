//! What the store knows without looking.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::SystemTime,
};

use osb_core::ImageName;
use osb_registry::{Digest, Reference};
use serde::{Deserialize, Serialize};

use super::layout::{Layout, Thing};
use crate::{ImageConfig, Rootfs};

/// An image that sandboxes can be made of. As long as it is held, it is not collected.
#[derive(Debug, Clone)]
pub struct Image {
    /// What it was asked for by.
    pub name: ImageName,
    /// Of its manifest; the image `host` has none.
    pub digest: Option<Digest>,
    pub rootfs: Rootfs,
    pub config: Arc<ImageConfig>,
    _held: Option<Arc<Known>>,
}

impl Image {
    pub(super) fn host(name: ImageName, rootfs: Rootfs) -> Self {
        Self { name, digest: None, rootfs, config: Arc::default(), _held: None }
    }

    pub(super) fn new(name: ImageName, known: &Arc<Known>) -> Self {
        Self {
            name,
            digest: Some(known.record.manifest.clone()),
            rootfs: known.rootfs.clone(),
            config: Arc::clone(&known.config),
            _held: Some(Arc::clone(known)),
        }
    }
}

/// An image of which everything is here, as its file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) manifest: Digest,
    pub(super) config: Digest,
    /// Lowest first.
    pub(super) layers: Vec<RecordedLayer>,
    /// How many of the lowest are one directory.
    #[serde(default)]
    pub(super) merged: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordedLayer {
    pub(super) blob: Digest,
    /// Of the blob.
    pub(super) size: u64,
    pub(super) chain: Digest,
    /// Of the files.
    pub(super) bytes: u64,
}

impl Record {
    /// The directory of merged layers, if there is one.
    pub(super) fn merged(&self) -> Option<Thing> {
        let last = self.layers.get(self.merged.checked_sub(1)?)?;
        Some(Thing::Merged(last.chain.clone()))
    }

    /// What the image is made of.
    pub(super) fn things(&self) -> impl Iterator<Item = Thing> {
        let blobs = [&self.manifest, &self.config].into_iter();
        let blobs = blobs.chain(self.layers.iter().map(|layer| &layer.blob));
        let layers = self.layers.iter().map(|layer| Thing::Layer(layer.chain.clone()));
        blobs.cloned().map(Thing::Blob).chain(layers).chain(self.merged())
    }

    pub(super) fn rootfs(&self, layout: &Layout) -> Rootfs {
        let above = self.layers.iter().skip(self.merged).rev();
        let above = above.map(|layer| layout.files(&Thing::Layer(layer.chain.clone())));
        let below = self.merged().map(|merged| layout.files(&merged));
        Rootfs { layers: above.chain(below).collect(), views: Vec::new() }
    }
}

#[derive(Debug)]
pub(super) struct Known {
    pub(super) record: Record,
    pub(super) config: Arc<ImageConfig>,
    pub(super) rootfs: Rootfs,
    /// When it came.
    pub(super) since: Option<SystemTime>,
}

/// An image, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub digest: Digest,
    pub names: Vec<String>,
    /// Bytes of its blobs, as they are pulled and pushed.
    pub size: u64,
    /// Bytes of its files.
    pub unpacked: u64,
    /// Of both together, what no other image here needs: what removing the image gives back.
    pub own: u64,
    pub layers: usize,
    /// When the image was made, as it says itself.
    pub created: Option<String>,
    /// When it came here.
    pub since: Option<SystemTime>,
    pub config: Arc<ImageConfig>,
}

/// What all images take, in bytes of content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub images: usize,
    pub blobs: u64,
    /// Unpacked.
    pub layers: u64,
    /// Of both together, what more than one image needs.
    pub shared: u64,
    /// Of both together, what no image needs: a collection gives it back.
    pub unused: u64,
}

/// All of it. What is on the disk and not in here is garbage.
#[derive(Debug, Default)]
pub(super) struct State {
    /// By reference, with its tag or its digest.
    pub(super) names: BTreeMap<String, Digest>,
    pub(super) images: HashMap<Digest, Arc<Known>>,
    /// What has its name on the disk, and how many bytes it is.
    pub(super) things: HashMap<Thing, u64>,
    /// What somebody is at, and how many are.
    pub(super) held: HashMap<Thing, usize>,
    /// Blobs of which the one part that is here is being added to.
    pub(super) ingesting: HashSet<Digest>,
}

impl State {
    pub(super) fn image(&self, digest: &Digest) -> Option<&Arc<Known>> {
        self.images.get(digest)
    }

    /// The manifest that this name stands for.
    pub(super) fn named(&self, name: &Reference) -> Option<Digest> {
        // The digest of a manifest that is here needs no name, and nothing else can have it for one.
        let itself = name.digest().filter(|digest| self.images.contains_key(digest)).cloned();
        itself.or_else(|| self.names.get(&key(name)).cloned())
    }

    /// How many images need each thing.
    fn users(&self) -> HashMap<Thing, usize> {
        let mut users: HashMap<Thing, usize> = HashMap::new();
        for known in self.images.values() {
            for thing in known.record.things().collect::<BTreeSet<_>>() {
                *users.entry(thing).or_default() += 1;
            }
        }
        users
    }

    pub(super) fn usage(&self) -> Usage {
        let users = self.users();
        let mut usage = Usage { images: self.images.len(), ..Usage::default() };
        for (thing, bytes) in &self.things {
            match thing {
                Thing::Blob(_) => usage.blobs += bytes,
                Thing::Layer(_) | Thing::Merged(_) => usage.layers += bytes,
            }
            match users.get(thing) {
                None => usage.unused += bytes,
                Some(1) => {}
                Some(_) => usage.shared += bytes,
            }
        }
        usage
    }

    pub(super) fn list(&self) -> Vec<Listed> {
        let mut names: HashMap<&Digest, Vec<String>> = HashMap::new();
        for (name, digest) in &self.names {
            names.entry(digest).or_default().push(familiar(name));
        }
        let users = self.users();
        let mut all: Vec<_> = self.images.values().collect();
        all.sort_by_key(|known| (known.since, known.record.manifest.clone()));
        let listed = |known: &Arc<Known>| {
            let record = &known.record;
            let things: BTreeSet<_> = record.things().collect();
            let bytes = |thing: &Thing| self.things.get(thing).copied().unwrap_or_default();
            let is_blob = |thing: &&Thing| matches!(thing, Thing::Blob(_));
            let sum = |things: &mut dyn Iterator<Item = &Thing>| things.map(bytes).sum::<u64>();
            Listed {
                digest: record.manifest.clone(),
                names: names.get(&record.manifest).cloned().unwrap_or_default(),
                size: sum(&mut things.iter().filter(is_blob)),
                unpacked: sum(&mut things.iter().filter(|thing| !is_blob(thing))),
                own: sum(&mut things.iter().filter(|thing| users.get(*thing) == Some(&1))),
                layers: record.layers.len(),
                created: known.config.created.clone(),
                since: known.since,
                config: Arc::clone(&known.config),
            }
        };
        all.into_iter().map(listed).collect()
    }
}

/// How a name is written down: where there is a digest, the tag says nothing.
pub(super) fn key(name: &Reference) -> String {
    match name.digest() {
        Some(digest) => format!("{}/{}@{digest}", name.registry(), name.repository()),
        None => name.to_string(),
    }
}

/// The same for whatever is the same name.
pub(super) fn key_of(name: &str) -> String {
    Reference::parse(name).map_or_else(|_| name.to_owned(), |name| key(&name))
}

fn familiar(name: &str) -> String {
    Reference::parse(name).map_or_else(|_| name.to_owned(), |name| name.familiar())
}
