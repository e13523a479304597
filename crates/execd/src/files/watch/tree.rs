use std::{
    collections::HashMap,
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use osb_api::execd::{Change, ChangeKind};
use rustix::{
    fs::{
        FileType,
        inotify::{self, WatchFlags},
    },
    io::Errno,
};
use tokio::io::unix::AsyncFd;

use super::{Announce, change};
use crate::{
    events::now,
    files::walk::{Step, Walk, below},
};

/// The most directories that one client may watch.
const DIRECTORIES: usize = 8192;

/// The longest path that the kernel takes.
const LONGEST: usize = 4096;

/// The most that is told of what a new directory has in it.
const ANNOUNCED: usize = 4096;

const CHANGES: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::EXCL_UNLINK);

/// Whether directories below the one that is watched are watched, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    One,
    All,
}

/// The directories that are watched, under the numbers that the kernel gave them.
#[derive(Debug)]
pub(super) struct Tree {
    queue: Arc<AsyncFd<OwnedFd>>,
    root: PathBuf,
    root_watch: i32,
    spread: Spread,
    /// All but the root: the directory around it, and its name there. So a directory that is moved
    /// takes all below along.
    places: HashMap<i32, (i32, Vec<u8>)>,
    /// Whether the client knows that not everything is watched.
    told_limit: bool,
}

impl Tree {
    pub(super) fn new(queue: Arc<AsyncFd<OwnedFd>>, root: PathBuf, spread: Spread) -> Self {
        Self { queue, root, root_watch: -1, spread, places: HashMap::new(), told_limit: false }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn is_root(&self, watch: i32) -> bool {
        watch == self.root_watch
    }

    /// Watches the root and what is below.
    pub(super) fn begin(&mut self, changes: &mut Vec<Change>) -> Result<(), Errno> {
        self.root_watch = inotify::add_watch(self.queue.get_ref(), &self.root, CHANGES)?;
        if self.root.is_dir() {
            self.join(None, Announce::Nothing, changes);
        }
        Ok(())
    }

    /// The path of a name in a directory that is watched, unless it is too long for the kernel:
    /// directories that are moved into each other can be deeper than anybody can name.
    pub(super) fn path(&self, watch: i32, name: &[u8]) -> Option<PathBuf> {
        let (mut names, mut at) = (vec![name], watch);
        let mut length = self.root.as_os_str().len() + name.len();
        while !self.is_root(at) {
            let (parent, name) = self.places.get(&at)?;
            names.push(name);
            length += name.len() + 1;
            at = *parent;
            // More would be a circle, which no file system has.
            if names.len() > self.places.len() + 1 || length > LONGEST {
                return None;
            }
        }
        let names = names.into_iter().rev().filter(|name| !name.is_empty());
        Some(names.fold(self.root.clone(), |path, name| path.join(OsStr::from_bytes(name))))
    }

    /// The kernel watches this no more. Says whether it was the root.
    pub(super) fn forget(&mut self, watch: i32) -> bool {
        self.places.remove(&watch);
        self.is_root(watch)
    }

    /// A directory has another place now.
    pub(super) fn moved(&mut self, from: &(i32, Vec<u8>), to: (i32, Vec<u8>)) {
        if let Some(place) = self.places.values_mut().find(|place| *place == from) {
            *place = to;
        }
    }

    /// A directory is not below the root any more: nor is what is in it.
    pub(super) fn left(&mut self, place: &(i32, Vec<u8>)) {
        let found = self.places.iter().find(|(_, known)| *known == place);
        let Some(gone) = found.map(|(watch, _)| *watch) else { return };
        self.places.remove(&gone);
        let mut all = vec![gone];
        while let Some(gone) = all.pop() {
            // What is gone already is what was wanted.
            inotify::remove_watch(self.queue.get_ref(), gone).ok();
            all.extend(
                self.places.extract_if(|_, (parent, _)| *parent == gone).map(|(inner, _)| inner),
            );
        }
    }

    /// Watches the directory at a place, or the root, and those below it.
    pub(super) fn join(
        &mut self,
        place: Option<(i32, Vec<u8>)>,
        announce: Announce,
        changes: &mut Vec<Change>,
    ) {
        if self.spread == Spread::One {
            return;
        }
        let (top, top_watch) = match place {
            None => (self.root.clone(), Some(self.root_watch)),
            Some((parent, name)) => {
                let Some(path) = self.path(parent, &name) else { return };
                let watch = self.add(&path, (parent, name), changes);
                (path, watch)
            }
        };
        let top = top.as_path();
        let Ok(mut walk) = Walk::new(top, usize::MAX) else { return };
        let (mut around, mut announced) = (vec![top_watch], 0);
        while let Some(step) = walk.next() {
            let entry = match step {
                Step::Left => {
                    around.pop();
                    continue;
                }
                Step::Entry(entry) => entry,
            };
            let path = below(top, &entry.path());
            let directory = entry.kind() == FileType::Directory;
            if directory {
                let parent = around.last().copied().flatten();
                let name = entry.name.to_bytes().to_vec();
                around.push(parent.and_then(|parent| self.add(&path, (parent, name), changes)));
            }
            if announce == Announce::All {
                announced += 1;
                if announced <= ANNOUNCED {
                    changes.push(change(ChangeKind::Created, &path, directory));
                } else if announced == ANNOUNCED + 1 {
                    changes.push(Change::bare(ChangeKind::Overflow, now()));
                }
            }
        }
    }

    /// Watches one directory.
    fn add(
        &mut self,
        path: &Path,
        place: (i32, Vec<u8>),
        changes: &mut Vec<Change>,
    ) -> Option<i32> {
        let flags = CHANGES | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        let added = if self.places.len() < DIRECTORIES {
            inotify::add_watch(self.queue.get_ref(), path, flags)
        } else {
            Err(Errno::NOSPC)
        };
        if added == Err(Errno::NOSPC) && !std::mem::replace(&mut self.told_limit, true) {
            changes.push(Change::bare(ChangeKind::Overflow, now()));
        }
        // What is gone or may not be seen has nothing to tell.
        let watch = added.ok()?;
        self.places.insert(watch, place);
        Some(watch)
    }
}
