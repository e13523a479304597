//! Layers by their chain ids, each unpacked once.

use std::{
    collections::HashSet,
    fs::File,
    sync::{Condvar, Mutex, PoisonError},
};

use osb_registry::{Algorithm, Digest};
use osb_sys::{
    fs::{self, PathError},
    tree,
    unpack::Foundation,
};
use serde::{Deserialize, Serialize};

use super::{ImageError, Images, intake::missing, layout::Thing};
use crate::{
    Limits, UnpackError,
    unpack::{Ahead, Unpacked, Unpacker},
};

/// The largest layer that is unpacked before those below it are: only then it is known how much the
/// image is in all.
const LARGEST_AHEAD: u64 = 1 << 30;

/// How far an image is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The number of the layer that is next, and how many there are.
    pub layer: usize,
    pub layers: usize,
}

/// The chain ids of an image's layers: each stands for a layer and all below it, so that what is
/// unpacked for one image is what another one needs only if both have the same below.
#[derive(Debug)]
pub(super) struct Chain {
    ids: Vec<Digest>,
    diff_ids: Vec<Digest>,
}

impl Chain {
    /// Lowest first.
    pub(super) fn new(diff_ids: &[Digest]) -> Self {
        let mut ids: Vec<Digest> = Vec::new();
        for diff_id in diff_ids {
            ids.push(match ids.last() {
                None => diff_id.clone(),
                Some(below) => Digest::of(format!("{below} {diff_id}").as_bytes()),
            });
        }
        Self { ids, diff_ids: diff_ids.to_vec() }
    }

    pub(super) fn id(&self, number: usize) -> Option<&Digest> {
        self.ids.get(number)
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn things(&self) -> impl Iterator<Item = Thing> {
        self.ids.iter().cloned().map(Thing::Layer)
    }
}

/// What is said of a layer beside its files.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Label {
    pub(super) diff_id: Digest,
    /// The content of its files.
    pub(super) bytes: u64,
}

/// When the layers below one are there.
#[derive(Clone, Copy)]
pub(super) enum Below<'a> {
    Now,
    /// When this answers. It says whether they are: they may never be.
    Then(&'a dyn Fn() -> bool),
}

impl Images {
    /// Makes sure that a layer is unpacked. Answers with its size.
    pub(super) fn layer(
        &self,
        chain: &Chain,
        number: usize,
        blob: &Digest,
        waits: Below<'_>,
    ) -> Result<u64, ImageError> {
        let (Some(id), Some(diff_id)) = (chain.id(number), chain.diff_ids.get(number)) else {
            return Ok(0);
        };
        let thing = Thing::Layer(id.clone());
        let _turn = self.inner.layers.wait(thing.clone());
        if let Some(bytes) = self.state().things.get(&thing) {
            return Ok(*bytes);
        }
        let file = self.blob(blob)?.ok_or_else(|| missing("layer", blob))?;
        let mut below: Vec<_> = chain.things().take(number).collect();
        below.reverse();
        let around = self.inner.layout.unfinished();
        let made = self.make_layer(number, file, diff_id, &below, &around, waits);
        let established = made.and_then(|bytes| {
            self.establish(&thing, &around, bytes)?;
            Ok(bytes)
        });
        if established.is_err() {
            tree::remove(&around)?;
        }
        established
    }

    fn make_layer(
        &self,
        number: usize,
        blob: File,
        diff_id: &Digest,
        below: &[Thing],
        around: &std::path::Path,
        waits: Below<'_>,
    ) -> Result<u64, ImageError> {
        let inner = &self.inner;
        let failed = |source| ImageError::Layer { number: number + 1, source };
        fs::create_dir(around, 0o700)?;
        let mut ahead = None;
        if let Below::Then(wait) = waits {
            ahead = self.make_ahead(&blob, diff_id.algorithm(), around)?;
            if !wait() {
                return Err(failed(UnpackError::Layer("the work was broken off".to_owned())));
            }
        }
        let foundation = Foundation::open(below.iter().map(|layer| inner.layout.files(layer)))?;
        let unpacker = Unpacker {
            owners: inner.owners,
            rights: inner.rights,
            limits: &inner.settings.limits,
            stop: &inner.stop,
        };
        let result = match ahead {
            Some(ahead) => ahead.finish(around, foundation),
            None => unpacker.unpack(blob, diff_id.algorithm(), around, foundation),
        };
        let Unpacked { digest, bytes } = result.map_err(failed)?;
        if digest != *diff_id {
            return Err(failed(UnpackError::Digest { wanted: diff_id.clone(), found: digest }));
        }
        let label = serde_json::to_vec(&Label { diff_id: digest, bytes });
        let label = label.map_err(|error| ImageError::Refused(error.to_string()))?;
        fs::write_whole(around.join("layer.json"), &label, 0o600)?;
        Ok(bytes)
    }

    /// Unpacks as much of a layer as can be while those below are not there. If that is not enough,
    /// `around` is as empty as it was.
    fn make_ahead(
        &self,
        blob: &File,
        algorithm: Algorithm,
        around: &std::path::Path,
    ) -> Result<Option<Ahead>, ImageError> {
        let inner = &self.inner;
        let limits = &inner.settings.limits;
        let limits = Limits { layer: limits.layer.min(LARGEST_AHEAD), ..*limits };
        let (owners, rights, stop) = (inner.owners, inner.rights, &inner.stop);
        let unpacker = Unpacker { owners, rights, limits: &limits, stop };
        let blob = blob.try_clone().map_err(|error| PathError::new("open", around, error))?;
        if let Ok(ahead) = unpacker.unpack_ahead(blob, algorithm, around) {
            return Ok(Some(ahead));
        }
        tree::remove(around)?;
        fs::create_dir(around, 0o700)?;
        Ok(None)
    }
}

/// Lets one at a time make a layer, and others wait for it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    busy: Mutex<HashSet<Thing>>,
    freed: Condvar,
}

/// The right to make a layer, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    thing: Thing,
}

impl Turns {
    pub(super) fn wait(&self, thing: Thing) -> Turn<'_> {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = self.freed.wait_while(busy, |busy| busy.contains(&thing));
        busy.unwrap_or_else(PoisonError::into_inner).insert(thing.clone());
        Turn { turns: self, thing }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.thing);
        self.turns.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_ids_are_those_that_everybody_computes() {
        let diff_ids = [Digest::of(b"a"), Digest::of(b"b")];
        let chain = Chain::new(&diff_ids);
        assert_eq!(chain.id(0), Some(&diff_ids[0]));
        let both = Digest::of(format!("{} {}", diff_ids[0], diff_ids[1]).as_bytes());
        assert_eq!(chain.id(1), Some(&both));
        assert_eq!(chain.len(), 2);
    }
}
