//! Which files are meant.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use osb_image::{Directory, Follow, Kind, Seen};

use super::{DEEPEST, Files, MOST_ENTRIES, TransferError, read};
use crate::{
    glob::{Glob, Stars},
    problem::{Fault, meant},
};

/// A file or directory that is to be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picked {
    /// Where it is, without links.
    pub(crate) at: PathBuf,
    pub(crate) seen: Seen,
    /// What it is called, which is not always what its file is called.
    pub(crate) name: OsString,
    /// Where it goes below the destination, with `--parents`.
    pub(crate) keeps: Option<PathBuf>,
}

impl Files<'_> {
    /// What a path or a pattern means. A pattern may mean nothing, a path has to be there.
    pub(crate) fn pick(&self, pattern: &str) -> Result<Vec<Picked>, TransferError> {
        if !Glob::is_wild(pattern) {
            let path = unescape(pattern);
            return Ok(vec![self.find(Path::new(&path))?.ok_or_else(|| self.missing(&path))?]);
        }
        let mut picked = Vec::new();
        let names: Vec<&str> = pattern.split('/').filter(|name| !name.is_empty()).collect();
        self.expand(&PathBuf::new(), &names, &mut picked)?;
        Ok(picked)
    }

    /// What a pattern means that is matched against whole paths below `base`.
    pub(crate) fn pick_below(
        &self,
        base: &str,
        pattern: &str,
    ) -> Result<Vec<Picked>, TransferError> {
        let top = self.find(Path::new(base))?.ok_or_else(|| self.missing(base))?;
        if top.seen.kind != Kind::Directory {
            return Err(
                Fault::new(format!("{base}, which comes before /./, is no directory")).into()
            );
        }
        let glob = Glob::new(pattern, Stars::Deep)?;
        let mut search =
            Search { files: self, glob, at: top.at.clone(), picked: Vec::new(), looked: 0 };
        if pattern.is_empty() {
            return Ok(vec![Picked { keeps: Some(PathBuf::new()), ..top }]);
        }
        let found = read(&top.at, self.stack.find(&top.at, Follow::ButLast))?;
        if let Some(directory) = found.directory() {
            search.directory(directory, &PathBuf::new(), 0)?;
        }
        if search.picked.is_empty() && !Glob::is_wild(pattern) {
            return Err(self.missing(&format!("{base}/{pattern}")));
        }
        Ok(search.picked)
    }

    /// Opens a file that was picked.
    pub(crate) fn open(&self, picked: &Picked) -> Result<File, TransferError> {
        let found = read(&picked.at, self.stack.find(&picked.at, Follow::ButLast))?;
        let name = picked.at.file_name().unwrap_or_default();
        let opened = found.directory().map(|directory| directory.open(name));
        let opened = opened.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
        read(&picked.at, opened)
    }

    /// Matches one name after another.
    fn expand(
        &self,
        at: &Path,
        names: &[&str],
        picked: &mut Vec<Picked>,
    ) -> Result<(), TransferError> {
        let Some((name, rest)) = names.split_first() else {
            picked.extend(self.find(at)?);
            if picked.len() > MOST_ENTRIES {
                return Err(too_many());
            }
            return Ok(());
        };
        if !Glob::is_wild(name) {
            return self.expand(&at.join(unescape(name)), rest, picked);
        }
        let glob = Glob::new(name, Stars::AsOne)?;
        let found = read(at, self.stack.find(at, Follow::Last))?;
        let Some(directory) = found.directory().filter(|_| found.is_directory()) else {
            return Ok(());
        };
        for (name, seen) in read(at, directory.names())? {
            read(at, self.asker.check())?;
            let is_more = rest.is_empty() || matches!(seen.kind, Kind::Directory | Kind::Symlink);
            if is_more && name.to_str().is_some_and(|name| glob.matches(name)) {
                self.expand(&at.join(&name), rest, picked)?;
            }
        }
        Ok(())
    }

    /// What is at a path, if it is part of what is copied. A link stands for what it leads to.
    fn find(&self, path: &Path) -> Result<Option<Picked>, TransferError> {
        let found = match self.stack.find(path, Follow::Last) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
            found => read(path, found)?,
        };
        let Some(seen) = found.seen else { return Ok(None) };
        if !self.has(path, &seen)? || !self.has(&found.path, &seen)? {
            return Ok(None);
        }
        let name = path.file_name().unwrap_or_default().to_owned();
        Ok(Some(Picked { at: found.path, seen, name, keeps: None }))
    }

    /// Whether something is not left out. A directory that is left out is there for what is in it and
    /// is not.
    pub(super) fn has(&self, path: &Path, seen: &Seen) -> Result<bool, TransferError> {
        if !self.ignore.excludes(&path.to_string_lossy()) {
            return Ok(true);
        }
        if seen.kind != Kind::Directory || !self.ignore.may_take_back() {
            return Ok(false);
        }
        let found = read(path, self.stack.find(path, Follow::Last))?;
        match found.directory().filter(|_| found.is_directory()) {
            Some(directory) => self.has_any(directory, &found.path, 0),
            None => Ok(false),
        }
    }

    fn has_any(
        &self,
        directory: &Directory,
        at: &Path,
        depth: usize,
    ) -> Result<bool, TransferError> {
        if depth > DEEPEST {
            return Err(too_deep(at));
        }
        for (name, seen) in read(at, directory.names())? {
            read(at, self.asker.check())?;
            let below = at.join(&name);
            if !self.ignore.excludes(&below.to_string_lossy()) {
                return Ok(true);
            }
            if seen.kind == Kind::Directory {
                let deeper = read(&below, directory.enter(&name))?;
                if self.has_any(&deeper, &below, depth + 1)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Says that something is not there, and what may be meant.
    fn missing(&self, path: &str) -> TransferError {
        let around = Path::new(path).parent().unwrap_or_else(|| Path::new(""));
        let name = Path::new(path).file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_out = self.ignore.excludes(path);
        let names = self.stack.find(around, Follow::Last).ok().and_then(|found| {
            let names = found.directory().filter(|_| found.is_directory())?.names().ok()?;
            Some(names.into_keys().filter_map(|name| name.into_string().ok()).collect::<Vec<_>>())
        });
        let names = names.unwrap_or_default();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let help = if is_out {
            ": .dockerignore leaves it out".to_owned()
        } else if names.contains(&name) {
            ": it is a link to what is not there".to_owned()
        } else {
            match meant(name, &names) {
                Some(other) => format!(": did you mean {}?", around.join(other).display()),
                None => String::new(),
            }
        };
        Fault::new(format!("{path} is not in {}{help}", self.name)).into()
    }
}

struct Search<'a> {
    files: &'a Files<'a>,
    glob: Glob,
    at: PathBuf,
    picked: Vec<Picked>,
    looked: usize,
}

impl Search<'_> {
    fn directory(
        &mut self,
        directory: &Directory,
        below: &Path,
        depth: usize,
    ) -> Result<(), TransferError> {
        if depth > DEEPEST {
            return Err(too_deep(below));
        }
        for (name, seen) in read(below, directory.names())? {
            read(below, self.files.asker.check())?;
            self.looked += 1;
            if self.looked > MOST_ENTRIES {
                return Err(too_many());
            }
            let (path, at) = (below.join(&name), self.at.join(below).join(&name));
            if !self.files.has(&at, &seen)? {
                continue;
            }
            if self.glob.matches(&path.to_string_lossy()) {
                self.picked.push(Picked { at, seen, name, keeps: Some(path) });
            } else if seen.kind == Kind::Directory {
                let deeper = read(&at, directory.enter(&name))?;
                self.directory(&deeper, &path, depth + 1)?;
            }
        }
        Ok(())
    }
}

pub(super) fn too_deep(path: &Path) -> TransferError {
    let path = OsStr::from_bytes(path.as_os_str().as_bytes().get(..80).unwrap_or_default());
    let path = path.to_string_lossy();
    Fault::new(format!("directories below {path}… lie more than {DEEPEST} deep")).into()
}

pub(super) fn too_many() -> TransferError {
    Fault::new(format!("there are more than {MOST_ENTRIES} files")).into()
}

/// A path without the escapes of characters that would make it a pattern.
fn unescape(pattern: &str) -> String {
    let mut path = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        path.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    path
}
