//! From files to a layer.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use osb_image::{Directory, Entry, Follow, Kind, Seen, Stack, Tarball, What};

use super::{Files, Owners, TransferError, pick::Picked, read, walk::Visit};
use crate::{chmod::Chmod, ignore::Ignore, problem::Fault};

/// When something was made that nobody made at any time: the first moment that zip files know, so that
/// whoever packs it can.
const MADE: i64 = 315_532_800;
/// Rights of directories on the way that are missing.
const DIRECTORY: u32 = 0o755;

/// What a layer came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// A layer that is being made for an image.
pub(crate) struct Layering<'a, W> {
    pub(super) tarball: Tarball<W>,
    tree: &'a Stack,
    /// Whom everything belongs to that is copied or made.
    pub(super) owner: Option<(u32, u32)>,
    pub(super) mode: Option<Chmod>,
    /// Nothing is newer than this.
    newest: Option<i64>,
    /// Whether nothing of the image is looked at but what directories it has.
    link: bool,
    /// Directories that the layer has.
    directories: HashSet<PathBuf>,
    /// Where each file with several names was written first.
    links: HashMap<(u64, u64), PathBuf>,
    /// The directory of the image that was looked into last.
    last: Option<(PathBuf, Option<Directory>)>,
    pub(super) written: Written,
}

/// Where something goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Without links, from the root.
    path: PathBuf,
    /// Whether files go into it, and not to its place.
    is_directory: bool,
}

impl<'a, W: Write> Layering<'a, W> {
    pub(crate) fn new(to: W, tree: &'a Stack, newest: Option<i64>) -> Self {
        Self {
            tarball: Tarball::new(to),
            tree,
            owner: None,
            mode: None,
            newest,
            link: false,
            directories: HashSet::new(),
            links: HashMap::new(),
            last: None,
            written: Written::default(),
        }
    }

    /// What everything that is copied is like.
    pub(crate) fn dressed(
        mut self,
        owner: Option<(u32, u32)>,
        mode: Option<Chmod>,
        link: bool,
    ) -> Self {
        (self.owner, self.mode, self.link) = (owner, mode, link);
        self
    }

    pub(crate) fn finish(self) -> Result<Written, TransferError> {
        self.tarball.finish().map_err(TransferError::Write)?;
        Ok(self.written)
    }

    /// Where `destination` is in the image, which is a directory if it is one already or is to be.
    pub(crate) fn target(
        &self,
        destination: &str,
        into_directory: bool,
    ) -> Result<Target, TransferError> {
        let path = Path::new(destination.trim_start_matches('/'));
        if self.link {
            let is_directory = into_directory || path.as_os_str().is_empty();
            return Ok(Target { path: path.to_owned(), is_directory });
        }
        let found = self.tree.find(path, Follow::Last);
        let found = match found {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Fault::new(format!(
                    "a file of the image is in the way of {destination}"
                ))
                .into());
            }
            found => read(path, found)?,
        };
        match found.seen.map(|seen| seen.kind) {
            None => Ok(Target { path: found.path, is_directory: into_directory }),
            Some(Kind::Directory) => Ok(Target { path: found.path, is_directory: true }),
            Some(_) if into_directory => Err(Fault::new(format!(
                "{destination} is to be a directory, and is a file in the image"
            ))
            .into()),
            Some(_) => Ok(Target { path: found.path, is_directory: false }),
        }
    }

    /// Writes what was picked. The content of a directory goes into the target, and a file goes into it
    /// or to its place.
    pub(crate) fn put(
        &mut self,
        files: &Files<'_>,
        picked: &Picked,
        exclude: &Ignore,
        target: &Target,
    ) -> Result<(), TransferError> {
        let at = match &picked.keeps {
            Some(keeps) => {
                self.keep_way(files, picked, keeps, target)?;
                target.path.join(keeps)
            }
            None if picked.seen.kind == Kind::Directory => {
                if !target.is_directory && self.in_image(&target.path)?.is_some() {
                    return Err(Fault::new(format!(
                        "the directory {} cannot take the place of the file /{}",
                        picked.name.display(),
                        target.path.display()
                    ))
                    .into());
                }
                self.make_way(&target.path)?;
                target.path.clone()
            }
            None => self.place(target, Path::new(&picked.name))?,
        };
        files.walk(picked, exclude, &mut |visit| {
            let path = at.join(visit.path);
            let path = if visit.path.as_os_str().is_empty() { at.clone() } else { path };
            self.visit(files, &path, visit)
        })
    }

    /// Writes a file that is at hand.
    pub(crate) fn put_file(
        &mut self,
        name: &str,
        content: impl Read,
        size: u64,
        mode: u32,
        target: &Target,
    ) -> Result<(), TransferError> {
        let path = self.place(target, Path::new(name))?;
        self.make_room(&path, Kind::File)?;
        let (user, group) = self.owner.unwrap_or_default();
        let mode = self.mode.as_ref().map_or(mode, |chmod| chmod.apply(mode, false));
        let (what, extended) = (What::File { size }, &BTreeMap::new());
        let modified = self.time(MADE);
        self.add(&Entry { path: &path, what, mode, user, group, modified, extended }, content)?;
        self.written.bytes += size;
        Ok(())
    }

    /// Writes a directory that hides whatever the image has in its place.
    pub(crate) fn put_hiding_directory(&mut self, path: &Path) -> Result<Target, TransferError> {
        self.make_way(path)?;
        if self.in_image(path)?.is_some() {
            self.tarball.hide_below(path, self.time(MADE)).map_err(TransferError::Write)?;
            self.written.entries += 1;
        }
        Ok(Target { path: path.to_owned(), is_directory: true })
    }

    /// Where a file goes, with all directories on the way.
    fn place(&mut self, target: &Target, name: &Path) -> Result<PathBuf, TransferError> {
        if target.is_directory {
            self.make_way(&target.path)?;
            return Ok(target.path.join(name));
        }
        self.make_way(target.path.parent().unwrap_or_else(|| Path::new("")))?;
        Ok(target.path.clone())
    }

    fn visit(
        &mut self,
        files: &Files<'_>,
        path: &Path,
        visit: &Visit<'_>,
    ) -> Result<(), TransferError> {
        let seen = &visit.seen;
        self.make_room(path, seen.kind)?;
        let (mut extended, mut target) = (BTreeMap::new(), Vec::new());
        if files.owners == Owners::Kept {
            extended = read(path, visit.around.extended(visit.name))?;
        }
        let first = if seen.names > 1 { self.links.get(&seen.identity).cloned() } else { None };
        let what = match (seen.kind, &first) {
            (Kind::Directory, _) => {
                if !self.directories.insert(path.to_owned()) {
                    return Ok(());
                }
                What::Directory
            }
            (_, Some(first)) => What::Link(first),
            (Kind::Symlink, None) => {
                target = read(path, visit.around.read_link(visit.name))?;
                What::Symlink(&target)
            }
            (Kind::Fifo, None) => What::Fifo,
            _ => What::File { size: seen.size },
        };
        let entry = self.dress(files, path, what, seen, &extended);
        if let What::File { size } = what {
            let file = read(path, visit.around.open(visit.name))?;
            self.add(&entry, file)?;
            self.written.bytes += size;
        } else {
            self.add(&entry, io::empty())?;
        }
        if seen.names > 1 && first.is_none() && seen.kind != Kind::Directory {
            self.links.insert(seen.identity, path.to_owned());
        }
        drop(target);
        Ok(())
    }

    fn dress<'e>(
        &self,
        files: &Files<'_>,
        path: &'e Path,
        what: What<'e>,
        seen: &Seen,
        extended: &'e BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Entry<'e> {
        let kept = match files.owners {
            Owners::Root => (0, 0),
            Owners::Kept => (seen.user, seen.group),
        };
        let (user, group) = self.owner.unwrap_or(kept);
        let is_directory = seen.kind == Kind::Directory;
        let mode = match (&self.mode, seen.kind) {
            (_, Kind::Symlink) => 0o777,
            (Some(chmod), _) => chmod.apply(seen.mode, is_directory),
            (None, _) => seen.mode,
        };
        Entry { path, what, mode, user, group, modified: self.time(seen.modified), extended }
    }

    /// Writes the directories on the way to what `--parents` keeps, as they are where it is from.
    fn keep_way(
        &mut self,
        files: &Files<'_>,
        picked: &Picked,
        keeps: &Path,
        target: &Target,
    ) -> Result<(), TransferError> {
        self.make_way(&target.path)?;
        let above = keeps.iter().count();
        let base: PathBuf = picked.at.iter().take(picked.at.iter().count() - above).collect();
        let mut ways: Vec<&Path> =
            keeps.ancestors().filter(|way| !way.as_os_str().is_empty()).collect();
        // What was picked itself is written with what is in it, unless it is a directory.
        if picked.seen.kind != Kind::Directory {
            ways.remove(0);
        }
        for way in ways.into_iter().rev() {
            let at = base.join(way);
            let found = read(&at, files.stack.find(&at, Follow::ButLast))?;
            let Some(seen) = found.seen else { continue };
            let path = target.path.join(way);
            self.make_room(&path, Kind::Directory)?;
            if self.directories.insert(path.clone()) {
                let extended = BTreeMap::new();
                let entry = self.dress(files, &path, What::Directory, &seen, &extended);
                self.add(&entry, io::empty())?;
            }
        }
        Ok(())
    }

    /// Writes the directories from the root to `path`: as the image has them, or new ones.
    pub(super) fn make_way(&mut self, path: &Path) -> Result<(), TransferError> {
        let ways: Vec<&Path> = path.ancestors().collect();
        for way in ways.into_iter().rev().filter(|way| !way.as_os_str().is_empty()) {
            if self.directories.contains(way) {
                continue;
            }
            let mut extended = BTreeMap::new();
            let seen = self.in_image(way)?;
            let (mode, owner, modified) = match seen {
                Some(seen) if seen.kind == Kind::Directory => {
                    if let Some((_, Some(around))) = &self.last {
                        let name = way.file_name().unwrap_or_default();
                        extended = read(way, around.extended(name))?;
                    }
                    (seen.mode, (seen.user, seen.group), seen.modified)
                }
                Some(_) if !self.link => {
                    let what =
                        format!("/{} is a file in the image, and no directory", way.display());
                    return Err(Fault(what).into());
                }
                _ => (DIRECTORY, self.owner.unwrap_or_default(), MADE),
            };
            self.directories.insert(way.to_owned());
            let ((user, group), modified) = (owner, self.time(modified));
            let what = What::Directory;
            let entry = Entry { path: way, what, mode, user, group, modified, extended: &extended };
            self.add(&entry, io::empty())?;
        }
        Ok(())
    }

    /// Fails if the image has something at `path` that nothing of this kind can take the place of.
    pub(super) fn make_room(&mut self, path: &Path, kind: Kind) -> Result<(), TransferError> {
        let is_directory = kind == Kind::Directory;
        if self.directories.contains(path) && !is_directory {
            let what = format!("/{} is both a file and a directory", path.display());
            return Err(Fault(what).into());
        }
        if self.link {
            return Ok(());
        }
        match self.in_image(path)? {
            Some(seen) if (seen.kind == Kind::Directory) != is_directory => {
                Err(Fault::new(format!(
                    "/{} is a {} in the image, and {} cannot take its place",
                    path.display(),
                    if is_directory { "file or link" } else { "directory" },
                    if is_directory { "a directory" } else { "a file" },
                ))
                .into())
            }
            _ => Ok(()),
        }
    }

    /// What the image has at `path`, which has no links on its way.
    fn in_image(&mut self, path: &Path) -> Result<Option<Seen>, TransferError> {
        let Some((around, name)) = path.parent().zip(path.file_name()) else {
            let root = read(path, self.tree.root())?;
            return read(path, root.itself());
        };
        if self.last.as_ref().is_none_or(|(last, _)| last != around) {
            let found = match self.tree.find(around, Follow::ButLast) {
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => None,
                found => Some(read(around, found)?),
            };
            // With `--link` there may be one after all, and what it leads to is not meant.
            let found = found.filter(|found| found.path == around && found.is_directory());
            self.last = Some((around.to_owned(), found.and_then(|mut found| found.way.pop())));
        }
        match &self.last {
            Some((_, Some(directory))) => read(path, directory.look(name)),
            _ => Ok(None),
        }
    }

    pub(super) fn add(
        &mut self,
        entry: &Entry<'_>,
        content: impl Read,
    ) -> Result<(), TransferError> {
        self.written.entries += 1;
        self.tarball.add(entry, content).map_err(|error| {
            // A name that images cannot have.
            if error.kind() == io::ErrorKind::InvalidInput {
                return Fault::new(error.to_string()).into();
            }
            TransferError::Write(error)
        })
    }

    pub(super) fn note_directory(&mut self, path: &Path) {
        self.directories.insert(path.to_owned());
    }

    pub(super) fn time(&self, modified: i64) -> i64 {
        self.newest.map_or(modified, |newest| modified.min(newest))
    }
}

impl Target {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// The same place, for what can only go into a directory.
    pub(crate) fn as_directory(&self) -> Self {
        Self { path: self.path.clone(), is_directory: true }
    }
}

/// Writes a layer with a directory, if the image does not have it.
pub(crate) fn empty_directory(
    tree: &Stack,
    path: &str,
    owner: Option<(u32, u32)>,
    newest: Option<i64>,
    to: impl Write,
) -> Result<Written, TransferError> {
    let mut layering = Layering::new(to, tree, newest).dressed(owner, None, false);
    let target = layering.target(path, true)?;
    if layering.in_image(target.path())?.is_none() {
        layering.make_way(target.path())?;
    }
    layering.finish()
}

/// Whether a path has a name in it that means something else in layers.
pub(super) fn check_name(path: &Path) -> Result<(), TransferError> {
    if osb_image::is_mark(path) {
        let what = format!(
            "{} has a name that means in images that something is gone",
            String::from_utf8_lossy(path.as_os_str().as_bytes())
        );
        return Err(Fault(what).into());
    }
    Ok(())
}
