//! Several layers as one directory, as they would be seen stacked.
//!
//! Files are not copied: they get another name there. So a merged directory costs directories only, and
//! its files must not be changed, as those of layers must not.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::atomic::AtomicBool,
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, linkat, mkdirat,
        openat, openat2, statat,
    },
    io::Errno,
};

use crate::{
    fs,
    layer::content::Content,
    rootless::Rights,
    unpack::{Foundation, copy_attributes, is_opaque, is_whiteout},
};

/// Merges layers into the directory `files` in `around`, which is empty.
///
/// Neither depth nor breadth costs stack or descriptors, but for one of each layer. It breaks off
/// soon after `stop` is set.
pub fn merge(
    layers: &Foundation,
    around: &Path,
    rights: Rights,
    stop: &AtomicBool,
) -> io::Result<()> {
    fs::create_dir(around.join("files"), 0o700).map_err(io::Error::other)?;
    let layers: Vec<&OwnedFd> = layers.directories().collect();
    let top = open(CWD, around.join("files"))?;
    let mut merge = Merge { layers, top, rights, stop, path: vec![b'.'] };
    let all: Vec<usize> = (0..merge.layers.len()).collect();
    let all = merge.shining(all)?;
    merge.tree(all)
}

struct Merge<'a> {
    /// Topmost first.
    layers: Vec<&'a OwnedFd>,
    top: OwnedFd,
    rights: Rights,
    stop: &'a AtomicBool,
    /// Of the directory that is being merged.
    path: Vec<u8>,
}

/// A directory, and which layers shine through in it, topmost first.
struct Child {
    name: CString,
    layers: Vec<usize>,
}

/// A directory whose inner ones are being merged.
struct Frame {
    layers: Vec<usize>,
    children: Vec<Child>,
    /// How long the path is without it.
    above: usize,
}

impl Merge<'_> {
    fn tree(&mut self, layers: Vec<usize>) -> io::Result<()> {
        let children = self.directory(&layers)?;
        let mut stack = vec![Frame { layers, children, above: self.path.len() }];
        while let Some(frame) = stack.last_mut() {
            if let Some(child) = frame.children.pop() {
                let above = self.path.len();
                self.path.push(b'/');
                self.path.extend(child.name.as_bytes());
                let children = self.directory(&child.layers)?;
                stack.push(Frame { layers: child.layers, children, above });
                continue;
            }
            // Last, for each new name in it has changed its times.
            if let Some(first) = frame.layers.first() {
                let from = self.open(*first)?;
                copy_attributes(&from, &self.merged()?, &fstat(&from)?)?;
            }
            self.path.truncate(frame.above);
            stack.pop();
        }
        Ok(())
    }

    /// Merges what is in the directory at the path; those of its entries that are directories are
    /// made, and named with the layers that shine through in them.
    fn directory(&self, layers: &[usize]) -> io::Result<Vec<Child>> {
        let to = self.merged()?;
        let mut open = Vec::new();
        for layer in layers {
            open.push((*layer, self.open(*layer)?));
        }
        let mut seen: HashSet<CString> = HashSet::new();
        let mut children = Vec::new();
        for (place, (layer, from)) in open.iter().enumerate() {
            for entry in Dir::read_from(from)? {
                if self.stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return Err(io::Error::new(io::ErrorKind::Interrupted, "it was broken off"));
                }
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") || seen.contains(name) {
                    continue;
                }
                seen.insert(name.to_owned());
                let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if is_whiteout(&stat) {
                    continue;
                }
                if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                    link(from, &to, name, &stat)?;
                    continue;
                }
                mkdirat(&to, name, Mode::RWXU)?;
                let below = open.get(place + 1..).unwrap_or_default();
                let layers = self.layers_of(*layer, from, below, name)?;
                children.push(Child { name: name.to_owned(), layers });
            }
        }
        Ok(children)
    }

    /// The layers that shine through in a directory of the topmost one that has it.
    fn layers_of(
        &self,
        layer: usize,
        from: &OwnedFd,
        below: &[(usize, OwnedFd)],
        name: &CStr,
    ) -> io::Result<Vec<usize>> {
        let mut layers = vec![layer];
        let mut last = open(from, name)?;
        for (layer, around) in below {
            if is_opaque(&last, self.rights)? {
                break;
            }
            last = match open(around, name) {
                Ok(found) => found,
                Err(Errno::NOENT) => continue,
                // A file, or a mark that it is gone.
                Err(Errno::NOTDIR | Errno::LOOP) => break,
                Err(error) => return Err(error.into()),
            };
            layers.push(*layer);
        }
        Ok(layers)
    }

    /// Of these layers those that shine through in the root.
    fn shining(&self, layers: Vec<usize>) -> io::Result<Vec<usize>> {
        for (count, layer) in layers.iter().enumerate() {
            if is_opaque(self.open(*layer)?, self.rights)? {
                return Ok(layers.into_iter().take(count + 1).collect());
            }
        }
        Ok(layers)
    }

    fn open(&self, layer: usize) -> Result<OwnedFd, Errno> {
        let layer = self.layers.get(layer).ok_or(Errno::NOENT)?;
        open_below(layer, &self.path)
    }

    fn merged(&self) -> Result<OwnedFd, Errno> {
        open_below(&self.top, &self.path)
    }
}

/// Gives a file another name, or copies it if it has as many as it can.
fn link(from: &OwnedFd, to: &OwnedFd, name: &CStr, stat: &Stat) -> io::Result<()> {
    match linkat(from, name, to, name, AtFlags::empty()) {
        Err(Errno::MLINK) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {}
        result => return Ok(result?),
    }
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let from = openat(from, name, read, Mode::empty())?;
    let make = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let to = openat(to, name, make, Mode::RUSR | Mode::WUSR)?;
    Content::default().copy(&from, &to, stat, &AtomicBool::new(false))?;
    copy_attributes(&from, &to, stat)
}

fn open(at: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

fn open_below(at: impl AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(at, path, flags, Mode::empty(), below)
}
