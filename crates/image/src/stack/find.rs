//! Paths within a stack, as a process would resolve them whose root it is.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use super::{Directory, Kind, Seen, Stack};

/// How many links a way may have, as the kernel counts them (`path_resolution(7)`).
const MOST_LINKS: usize = 40;
/// How many names.
const MOST_NAMES: usize = 4096;

/// What becomes of a link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// It is followed, as those before it are.
    Last,
    /// It is what was asked for.
    ButLast,
}

/// Where a path leads.
#[derive(Debug)]
pub struct Found {
    /// The same place without links and `..`, from the root and without a slash before it.
    pub path: PathBuf,
    /// What is there.
    pub seen: Option<Seen>,
    /// The directories on the way as far as they exist, the root first.
    pub way: Vec<Directory>,
}

impl Found {
    /// The directory that was found, or the deepest on the way to what was.
    pub fn directory(&self) -> Option<&Directory> {
        self.way.last()
    }

    pub fn is_directory(&self) -> bool {
        self.seen.is_some_and(|seen| seen.kind == Kind::Directory)
    }
}

impl Stack {
    /// Resolves `path` from the root. What does not exist is taken as it is written.
    pub fn find(&self, path: &Path, follow: Follow) -> io::Result<Found> {
        let mut walk = Walk { real: Vec::new(), way: vec![self.root()?], leaf: None, links: 0 };
        let mut ahead = reversed(path.as_os_str().as_bytes());
        let mut steps = 0;
        while let Some(name) = ahead.pop() {
            steps += 1;
            if steps > MOST_NAMES {
                return Err(Errno::NAMETOOLONG.into());
            }
            walk.step(&name, &mut ahead, follow)?;
        }
        let seen = match walk.leaf {
            Some(seen) => Some(seen),
            None if walk.real.len() + 1 == walk.way.len() => match walk.way.last() {
                Some(directory) => directory.itself()?,
                None => None,
            },
            None => None,
        };
        Ok(Found { path: walk.real.iter().collect(), seen, way: walk.way })
    }
}

struct Walk {
    real: Vec<OsString>,
    way: Vec<Directory>,
    /// What ends the way, if it is no directory.
    leaf: Option<Seen>,
    links: usize,
}

impl Walk {
    fn step(&mut self, name: &OsStr, ahead: &mut Vec<OsString>, follow: Follow) -> io::Result<()> {
        if self.leaf.is_some() {
            return Err(Errno::NOTDIR.into());
        }
        let is_here = self.real.len() + 1 == self.way.len();
        match name.as_bytes() {
            b"." => return Ok(()),
            b".." => {
                self.real.pop();
                self.way.truncate(self.real.len() + 1);
                return Ok(());
            }
            _ if !is_here => {
                self.real.push(name.to_owned());
                return Ok(());
            }
            _ => {}
        }
        let here = self.way.last().ok_or(Errno::NOENT)?;
        match here.look(name)? {
            None => self.real.push(name.to_owned()),
            Some(seen)
                if seen.kind == Kind::Symlink && (follow == Follow::Last || !ahead.is_empty()) =>
            {
                self.links += 1;
                if self.links > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = here.read_link(name)?;
                if target.first() == Some(&b'/') {
                    self.real.clear();
                    self.way.truncate(1);
                }
                ahead.extend(reversed(&target));
            }
            Some(seen) if seen.kind == Kind::Directory => {
                let next = here.enter(name)?;
                self.real.push(name.to_owned());
                self.way.push(next);
            }
            Some(seen) => {
                self.real.push(name.to_owned());
                self.leaf = Some(seen);
            }
        }
        Ok(())
    }
}

/// The names of a path, the last one first.
fn reversed(path: &[u8]) -> Vec<OsString> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.rev().map(|name| OsStr::from_bytes(name).to_owned()).collect()
}
