//! Images of many layers.
//!
//! Each layer costs a mount whenever a sandbox is made, and the overlay takes only so many, of which
//! snapshots need some. So of an image with many layers, the lower ones are merged once. They are merged
//! in steps of a fixed size: images that share their lower layers share what these are merged to, and
//! an image that grows by a layer is seldom merged anew.

use std::os::fd::AsFd;

use osb_registry::Digest;
use osb_sys::{confined, fs, fs::PathError, merge, tree, unpack::Foundation};

use super::{ImageError, Images, Intake, layers::Chain, layout::Thing};

/// As many layers a sandbox may have below it: what they cost is less than what can be measured.
const MOST_APART: usize = 8;
/// How many layers are merged at once: each is open meanwhile.
const AT_ONCE: usize = 64;

/// How many of an image's layers are merged, the lowest.
pub(crate) fn merged_of(count: usize) -> usize {
    if count <= MOST_APART { 0 } else { count - count % MOST_APART }
}

impl Intake {
    /// Merges the lower layers of an image whose other parts may still be missing; they are here.
    pub(crate) fn merge_lower(&self, diff_ids: &[Digest]) -> Result<(), ImageError> {
        self.merge(&Chain::new(diff_ids)).map(drop)
    }

    /// Merges the lower layers of an image that has many. Answers with how many those are.
    pub(super) fn merge(&self, chain: &Chain) -> Result<usize, ImageError> {
        let wanted = merged_of(chain.len());
        let mut from = (1..wanted / MOST_APART)
            .map(|steps| steps * MOST_APART)
            .filter(|count| self.is_merged(chain, *count))
            .max()
            .unwrap_or_default();
        while from < wanted {
            let next = wanted.min(from + AT_ONCE);
            self.images().merge(chain, from, next, |thing| self.hold(thing))?;
            from = next;
        }
        Ok(wanted)
    }

    fn is_merged(&self, chain: &Chain, count: usize) -> bool {
        let Some(thing) = merged(chain, count) else { return false };
        self.hold(&thing);
        self.images().state().things.contains_key(&thing)
    }
}

impl Images {
    /// Merges the lowest `count` layers, of which the lowest `from` are merged already.
    fn merge(
        &self,
        chain: &Chain,
        from: usize,
        count: usize,
        hold: impl Fn(&Thing),
    ) -> Result<(), ImageError> {
        let Some(thing) = merged(chain, count) else { return Ok(()) };
        hold(&thing);
        let _turn = self.inner.layers.wait(thing.clone());
        if self.state().things.contains_key(&thing) {
            return Ok(());
        }
        let layout = &self.inner.layout;
        let mut layers: Vec<_> = merged(chain, from).into_iter().collect();
        layers.extend(chain.things().take(count).skip(from));
        layers.reverse();
        let around = layout.unfinished();
        let made = self
            .make_merged(&layers, &around)
            .map_err(|error| ImageError::from(PathError::new("merge layers to", &around, error)));
        let established = made.and_then(|()| self.establish(&thing, &around, 0));
        if established.is_err() {
            tree::remove(&around)?;
        }
        established
    }

    fn make_merged(&self, layers: &[Thing], around: &std::path::Path) -> std::io::Result<()> {
        let layout = &self.inner.layout;
        fs::create_dir(around, 0o700).map_err(std::io::Error::other)?;
        let foundation = Foundation::open(layers.iter().map(|layer| layout.files(layer)));
        let foundation = foundation.map_err(std::io::Error::other)?;
        let directory = fs::open(around).map_err(std::io::Error::other)?;
        // A file gets another name only where the thread may do the same with it as where it was.
        let mut reached = vec![directory.as_fd()];
        reached.extend(foundation.directories().map(AsFd::as_fd));
        confined::run_within(&reached, || {
            merge::merge(&foundation, around, self.inner.rights, &self.inner.stop)
        })?
    }
}

/// The lowest `count` layers as one.
fn merged(chain: &Chain, count: usize) -> Option<Thing> {
    chain.id(count.checked_sub(1)?).cloned().map(Thing::Merged)
}
