//! What was built before.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use osb_registry::Digest;
use osb_sys::fs::{self, PathError};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::{CacheKey, CacheMount, Made, Sharing};

/// Steps that were done, by their keys, each in a file of its own. Clones are the same cache.
#[derive(Debug, Clone)]
pub struct Cache {
    directory: Arc<PathBuf>,
    /// Who is at which of the directories that outlive builds.
    turns: Arc<Mutex<HashMap<String, Arc<Turn<()>>>>>,
}

/// What a step has left, and the image that keeps its layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its manifest, which is nobody's image and is to be held as long as the step is remembered.
    pub manifest: Digest,
    pub made: Made,
}

/// How much is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub steps: usize,
    /// Of all layers that steps left, and those below them, as they are kept.
    pub bytes: u64,
    /// After a step was used last.
    pub age: Duration,
}

/// What somebody is at.
pub(crate) type Held = Vec<OwnedMutexGuard<()>>;

impl Cache {
    /// Opens the cache in `directory`, and makes it if it is new.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, PathError> {
        let directory = directory.into();
        fs::create_dir_all(&directory)?;
        Ok(Self { directory: Arc::new(directory), turns: Arc::default() })
    }

    /// What a step with this key has left. A file that cannot be understood is none.
    pub fn find(&self, key: &CacheKey) -> Option<Kept> {
        let path = self.path(key);
        let kept = serde_json::from_slice(&fs::read_small(&path).ok()?).ok()?;
        // So that what is used is not what is thrown away first.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).ok();
        Some(kept)
    }

    pub fn keep(&self, key: &CacheKey, kept: &Kept) -> Result<(), PathError> {
        let path = self.path(key);
        let text = serde_json::to_vec(kept).map_err(io::Error::from);
        let text = text.map_err(|error| PathError::new("write", &path, error))?;
        fs::write_whole(path, &text, 0o600)
    }

    pub fn forget(&self, key: &CacheKey) -> Result<(), PathError> {
        fs::remove_file(self.path(key))
    }

    /// How many steps are remembered.
    pub fn count(&self) -> Result<usize, PathError> {
        Ok(self.all()?.len())
    }

    /// The manifests that must stay for everything here to be of use.
    pub fn used(&self) -> Result<BTreeSet<Digest>, PathError> {
        let kept = self.all()?.into_iter().filter_map(|(_, path)| read(&path));
        Ok(kept.map(|kept| kept.manifest).collect())
    }

    /// Forgets what was not used for long, and what is more than `bounds` say, that which was not used
    /// for longest first. Answers how many steps were forgotten.
    pub fn trim(&self, bounds: Bounds, now: SystemTime) -> Result<usize, PathError> {
        let (mut steps, mut bytes, mut forgotten) = (0, 0_u64, 0);
        let mut layers = BTreeSet::new();
        for (used, path) in self.all()?.into_iter().rev() {
            let kept = read(&path);
            for layer in kept.iter().flat_map(|kept| &kept.made.tree.layers) {
                // Those that another step stands on too are there once.
                if layers.insert(layer.diff_id.clone()) {
                    bytes = bytes.saturating_add(layer.blob.size);
                }
            }
            steps += 1;
            let age = now.duration_since(used).unwrap_or_default();
            let is_too_much = steps > bounds.steps || bytes > bounds.bytes || age > bounds.age;
            if kept.is_none() || is_too_much {
                fs::remove_file(path)?;
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }

    /// All files, those that were used longest ago first.
    fn all(&self) -> Result<Vec<(SystemTime, PathBuf)>, PathError> {
        let mut all = Vec::new();
        for name in fs::names(self.directory.as_path())? {
            let path = self.directory.join(&name);
            if Path::new(&name).extension().is_some_and(|extension| extension == "json")
                && let Some((changed, _)) = fs::changed(&path)?
            {
                all.push((changed, path));
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    fn path(&self, key: &CacheKey) -> PathBuf {
        self.directory.join(format!("{}.json", key.as_digest().hex()))
    }

    /// Waits for directories that nobody else may be at, and chooses others for those that are not to
    /// be shared.
    pub(crate) async fn take(&self, caches: &mut [CacheMount]) -> Held {
        let mut held = Held::new();
        // In one order, so that no two wait for each other.
        let locked = caches.iter().filter(|cache| cache.sharing == Sharing::Locked);
        let locked: BTreeSet<String> = locked.map(|cache| cache.id.clone()).collect();
        for id in locked {
            held.push(self.turn(&id).lock_owned().await);
        }
        for cache in caches.iter_mut().filter(|cache| cache.sharing == Sharing::Private) {
            let mut number = 1_u64;
            loop {
                let id = match number {
                    1 => cache.id.clone(),
                    number => format!("{}\n{number}", cache.id),
                };
                if let Ok(turn) = self.turn(&format!("private\n{id}")).try_lock_owned() {
                    held.push(turn);
                    cache.id = id;
                    break;
                }
                number += 1;
            }
        }
        held
    }

    fn turn(&self, id: &str) -> Arc<Turn<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody is at those that only we know.
        turns.retain(|known, turn| known == id || Arc::strong_count(turn) > 1);
        turns.entry(id.to_owned()).or_default().clone()
    }
}

fn read(path: &Path) -> Option<Kept> {
    serde_json::from_slice(&fs::read_small(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use osb_core::Clock as _;

    use super::*;
    use crate::{Tree, key::Key};

    fn key(name: &str) -> CacheKey {
        Key::new(name).finish()
    }

    fn kept(name: &str) -> Kept {
        let made = Made { tree: Tree::default(), at: 7 };
        Kept { manifest: Digest::of(name.as_bytes()), made }
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::open(root.path().join("cache")).unwrap();
        for (age, name) in [(30, "a"), (20, "b"), (10, "c")] {
            cache.keep(&key(name), &kept(name)).unwrap();
            let file = std::fs::File::open(cache.path(&key(name))).unwrap();
            let at = file.metadata().unwrap().modified().unwrap() - Duration::from_secs(age);
            file.set_modified(at).unwrap();
        }
        assert_eq!(cache.find(&key("a")), Some(kept("a")));
        let all = Bounds { steps: 9, bytes: u64::MAX, age: Duration::MAX };
        let now = SystemTime::from(osb_core::SystemClock.now());
        assert_eq!(cache.trim(Bounds { steps: 2, ..all }, now).unwrap(), 1);
        assert_eq!((cache.find(&key("b")), cache.find(&key("c"))), (None, Some(kept("c"))));
        assert_eq!(
            cache.used().unwrap(),
            ["a", "c"].map(|name| Digest::of(name.as_bytes())).into()
        );
        cache.forget(&key("a")).unwrap();
        fs::write(cache.path(&key("d")), "{").unwrap();
        assert_eq!(cache.find(&key("d")), None);
        assert_eq!((cache.trim(all, now).unwrap(), cache.used().unwrap().len()), (1, 1));
    }

    #[test]
    fn what_is_too_old_or_too_much_is_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::open(root.path()).unwrap();
        let layer = |name: &str| crate::Layer {
            blob: osb_registry::Descriptor::new("x", Digest::of(name.as_bytes()), 100),
            diff_id: Digest::of(name.as_bytes()),
        };
        // Each stands on the one before.
        let mut tree = Tree::default();
        let now = SystemTime::from(osb_core::SystemClock.now());
        for (age, name) in [(30, "a"), (20, "b"), (10, "c")] {
            tree.layers.push(layer(name));
            let made = Made { tree: tree.clone(), at: 7 };
            cache.keep(&key(name), &Kept { manifest: Digest::of(b"x"), made }).unwrap();
            let file = std::fs::File::open(cache.path(&key(name))).unwrap();
            file.set_modified(now - Duration::from_secs(age)).unwrap();
        }
        let all = Bounds { steps: 9, bytes: 300, age: Duration::from_mins(1) };
        assert_eq!(cache.trim(all, now).unwrap(), 0);
        assert_eq!(cache.trim(Bounds { steps: 2, ..all }, now).unwrap(), 1);
        assert_eq!(cache.trim(Bounds { age: Duration::from_secs(15), ..all }, now).unwrap(), 1);
        assert_eq!(cache.all().unwrap().len(), 1);
        assert_eq!(cache.trim(Bounds { bytes: 299, ..all }, now).unwrap(), 1);
        assert_eq!(cache.all().unwrap().len(), 0);
    }

    fn mount(sharing: Sharing) -> CacheMount {
        let (id, target) = ("x".to_owned(), "/x".to_owned());
        CacheMount { id, target, read_only: false, sharing, mode: 0o755, user: 0, group: 0 }
    }

    #[tokio::test]
    async fn directories_are_shared_as_it_is_said() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::open(root.path()).unwrap();
        let first = cache.take(&mut [mount(Sharing::Locked), mount(Sharing::Locked)]).await;
        assert_eq!(first.len(), 1);
        assert!(cache.take(&mut [mount(Sharing::Shared)]).await.is_empty());
        let mut waiting_for = [mount(Sharing::Locked)];
        let waiting = cache.take(&mut waiting_for);
        tokio::pin!(waiting);
        let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut nobody).is_pending());
        drop(first);
        assert_eq!(waiting.await.len(), 1);
        let (mut one, mut other) = ([mount(Sharing::Private)], [mount(Sharing::Private)]);
        let held = (cache.take(&mut one).await, cache.take(&mut other).await);
        assert_ne!(one[0].id, other[0].id);
        drop(held);
        let mut again = [mount(Sharing::Private)];
        cache.take(&mut again).await;
        assert_eq!(again[0].id, "x");
    }
}
