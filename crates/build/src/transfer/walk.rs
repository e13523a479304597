//! All that is below what was picked.

use std::{ffi::OsStr, path::Path};

use osb_image::{Directory, Follow, Kind, Seen};

use super::{
    DEEPEST, Files, MOST_ENTRIES, TransferError,
    pick::{Picked, too_deep, too_many},
    read,
};
use crate::{ignore::Ignore, problem::Fault};

/// A file or directory on the way.
pub(super) struct Visit<'a> {
    /// Below what was picked. Empty for that itself.
    pub(super) path: &'a Path,
    pub(super) seen: Seen,
    /// The directory that it is in.
    pub(super) around: &'a Directory,
    pub(super) name: &'a OsStr,
}

impl Files<'_> {
    /// Visits what was picked and all that is below it, directories before what is in them, in the
    /// order of their names.
    pub(super) fn walk(
        &self,
        picked: &Picked,
        exclude: &Ignore,
        visit: &mut dyn FnMut(&Visit<'_>) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let found = read(&picked.at, self.stack.find(&picked.at, Follow::ButLast))?;
        let mut walk = Walk { files: self, exclude, picked, visit, visited: 0 };
        if picked.seen.kind != Kind::Directory {
            let Some(around) = found.directory() else { return Ok(()) };
            let name = picked.at.file_name().unwrap_or_default();
            let called = picked.keeps.as_deref().unwrap_or_else(|| Path::new(&picked.name));
            if exclude.excludes(&called.to_string_lossy()) {
                return Ok(());
            }
            return walk.one(&Visit { path: Path::new(""), seen: picked.seen, around, name });
        }
        match found.directory() {
            Some(directory) => walk.directory(directory, Path::new(""), 0),
            None => Ok(()),
        }
    }
}

struct Walk<'a> {
    files: &'a Files<'a>,
    exclude: &'a Ignore,
    picked: &'a Picked,
    visit: &'a mut dyn FnMut(&Visit<'_>) -> Result<(), TransferError>,
    visited: usize,
}

impl Walk<'_> {
    fn directory(
        &mut self,
        directory: &Directory,
        path: &Path,
        depth: usize,
    ) -> Result<(), TransferError> {
        if depth > DEEPEST {
            return Err(too_deep(&self.picked.at.join(path)));
        }
        let at = self.picked.at.join(path);
        for (name, seen) in read(&at, directory.names())? {
            read(&at, self.files.asker.check())?;
            let below = path.join(&name);
            let real = self.picked.at.join(&below);
            // As it is called where `--exclude` was written.
            let called = match &self.picked.keeps {
                Some(keeps) => keeps.join(&below),
                None => below.clone(),
            };
            let is_out = self.exclude.excludes(&called.to_string_lossy());
            let is_deep = seen.kind == Kind::Directory && self.exclude.may_take_back();
            if !self.files.has(&real, &seen)? || (is_out && !is_deep) {
                continue;
            }
            if !is_out || seen.kind != Kind::Directory {
                self.one(&Visit { path: &below, seen, around: directory, name: &name })?;
            }
            if seen.kind == Kind::Directory {
                let deeper = read(&real, directory.enter(&name))?;
                self.directory(&deeper, &below, depth + 1)?;
            }
        }
        Ok(())
    }

    fn one(&mut self, visit: &Visit<'_>) -> Result<(), TransferError> {
        self.visited += 1;
        if self.visited > MOST_ENTRIES {
            return Err(too_many());
        }
        let path = self.picked.at.join(visit.path);
        match visit.seen.kind {
            Kind::Device | Kind::Whiteout | Kind::Socket => Err(Fault::new(format!(
                "{} is a device or a socket, which images do not have here: leave it out with \
                 .dockerignore or --exclude",
                path.display()
            ))
            .into()),
            Kind::File | Kind::Directory | Kind::Symlink | Kind::Fifo => (self.visit)(visit),
        }
    }
}
