//! Finding again what an earlier process has left.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

use osb_core::Chain;
use osb_registry::Digest;
use osb_sys::{
    fs::{self, PathError},
    rootless::Rights,
    userns::IdBase,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{
    ImageError, Images, Inner, collect,
    known::{Known, Record, State, key_of},
    layers::{Label, Turns},
    layout::{Layout, Thing, of_file_name},
    settle::Settler,
};
use crate::{Configuration, Settings, etc, host};

/// How layers are unpacked. One that was unpacked otherwise is unpacked again.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Format {
    version: u32,
    owners: u32,
}

const VERSION: u32 = 1;

pub(super) fn open(
    directory: PathBuf,
    owners: IdBase,
    settings: Settings,
) -> Result<Images, ImageError> {
    let rights = Rights::current().map_err(|error| PathError::new("look at", "/proc", error))?;
    fs::create_dir_all(&directory)?;
    let layout = Layout::new(directory);
    layout.prepare()?;
    let unfinished = layout.directory("unfinished");
    clear(&unfinished, &unfinished)?;
    check_format(&layout, owners)?;
    let settler = Arc::new(Settler::new(layout.directory("unsettled"))?);
    for torn in settler.torn()? {
        fs::put_aside(layout.thing(&torn), layout.unfinished())?;
        settler.forget(&torn)?;
    }
    clear(&unfinished, &unfinished)?;
    let things = things(&layout)?;
    let host = host::prepare(&layout.directory("host"), owners)?;
    let etc = etc::prepare(&layout.directory("etc"), owners)?;
    let images = Images {
        inner: Arc::new(Inner {
            layout,
            owners,
            rights,
            aliases: settings
                .aliases
                .iter()
                .map(|(name, image)| (key_of(name), image.clone()))
                .collect(),
            settings,
            host,
            etc,
            state: Mutex::new(State { things, ..State::default() }),
            disk: Mutex::default(),
            layers: Turns::default(),
            settler,
            stop: AtomicBool::new(false),
            renamed: watch::Sender::new(()),
        }),
    };
    images.recall()?;
    images.inner.settler.wake();
    Ok(images)
}

/// Removes everything in a directory whose content nobody needs.
fn clear(directory: &std::path::Path, around: &std::path::Path) -> Result<(), PathError> {
    for name in fs::names(directory)? {
        let path = directory.join(name);
        let is_directory = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        if is_directory { collect::delete(around, &path)? } else { fs::remove_file(&path)? }
    }
    Ok(())
}

/// Throws layers away that were made otherwise than this program makes them: they are made again of
/// their blobs.
fn check_format(layout: &Layout, owners: IdBase) -> Result<(), ImageError> {
    let path = layout.root().join("format.json");
    let wanted = Format { version: VERSION, owners: owners.0 };
    let found = match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).ok(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    if found.as_ref() == Some(&wanted) {
        return Ok(());
    }
    for name in ["layers", "merged"] {
        let directory = layout.directory(name);
        clear(&directory, &directory)?;
    }
    let text = serde_json::to_vec(&wanted);
    let text = text.map_err(|error| ImageError::Refused(error.to_string()))?;
    Ok(fs::write_whole(path, &text, 0o600)?)
}

/// What has its name, and how large it is.
fn things(layout: &Layout) -> Result<HashMap<Thing, u64>, PathError> {
    let mut things = HashMap::new();
    for algorithm in Thing::ALGORITHMS {
        for hex in fs::names(layout.blobs(algorithm))? {
            let Ok(digest) = Digest::parse(&format!("{}:{hex}", algorithm.as_str())) else {
                continue;
            };
            let thing = Thing::Blob(digest);
            let size = fs::changed(layout.thing(&thing))?.map_or(0, |(_, size)| size);
            things.insert(thing, size);
        }
    }
    for name in fs::names(layout.directory("layers"))? {
        let Some(thing) = of_file_name(&name).map(Thing::Layer) else { continue };
        let label = fs::read(layout.thing(&thing).join("layer.json")).ok();
        match label.and_then(|text| serde_json::from_slice::<Label>(&text).ok()) {
            Some(label) => drop(things.insert(thing, label.bytes)),
            None => drop(fs::put_aside(layout.thing(&thing), layout.unfinished())?),
        }
    }
    for name in fs::names(layout.directory("merged"))? {
        // They have no content of their own.
        things.extend(of_file_name(&name).map(|chain| (Thing::Merged(chain), 0)));
    }
    Ok(things)
}

impl Images {
    /// Reads which images there are and what they are called.
    fn recall(&self) -> Result<(), ImageError> {
        let layout = &self.inner.layout;
        for name in fs::names(layout.directory("images"))? {
            let Some(digest) = name.strip_suffix(".json").and_then(of_file_name) else { continue };
            if let Err(error) = self.recall_image(&digest) {
                let error = Chain(&error);
                tracing::warn!(image = %digest, %error, "an image is no longer whole: pull it again");
                fs::remove_file(layout.image(&digest))?;
            }
        }
        let mut names: BTreeMap<String, Digest> = match fs::read(layout.names()) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(%error, "the names of images are lost: pull or import them again");
                BTreeMap::new()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error.into()),
        };
        let before = names.len();
        names.retain(|_, digest| self.state().images.contains_key(digest));
        if names.len() != before {
            self.keep_names(&names)?;
        }
        self.state().names = names;
        Ok(())
    }

    fn recall_image(&self, digest: &Digest) -> Result<(), ImageError> {
        let path = self.inner.layout.image(digest);
        let wrong = |error: serde_json::Error| ImageError::Refused(error.to_string());
        let record: Record = serde_json::from_slice(&fs::read(&path)?).map_err(wrong)?;
        let is_whole = {
            let state = self.state();
            record.things().all(|thing| state.things.contains_key(&thing))
        };
        if !is_whole {
            // Its layers are made again if its blobs are here.
            self.intake().unpack(digest, |_| ())?;
            return Ok(());
        }
        let config = self.intake().document(&record.config)?;
        let configuration: Configuration = serde_json::from_slice(&config).map_err(wrong)?;
        let known = Known {
            rootfs: record.rootfs(&self.inner.layout),
            config: Arc::new(configuration.image_config()),
            since: fs::changed(&path)?.map(|(since, _)| since),
            record,
        };
        self.state().images.insert(digest.clone(), Arc::new(known));
        Ok(())
    }
}
