//! The directories of a layer that is being made.

use std::{
    collections::{HashMap, HashSet},
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::io::Errno;

use super::{Attributes, open};

/// The number of the layer's own directory.
pub(super) const ROOT: usize = 0;

/// All of them by number, and those open that lie on the way to the one that was needed last:
/// archives mostly have together what is in one directory.
#[derive(Debug)]
pub(super) struct Directories {
    all: Vec<Directory>,
    way: Vec<(usize, OwnedFd)>,
    top: OwnedFd,
}

#[derive(Debug)]
pub(super) struct Directory {
    above: usize,
    name: CString,
    /// Of its whole path.
    length: usize,
    inner: HashMap<CString, usize>,
    /// Whether nothing of it shines through from below.
    pub(super) opaque: bool,
    /// Names of which nothing shines through from below.
    pub(super) gone: HashSet<CString>,
    pub(super) attributes: Attributes,
}

impl Directories {
    pub(super) fn new(top: OwnedFd, attributes: Attributes) -> Self {
        let root = Directory {
            above: ROOT,
            name: CString::default(),
            length: 0,
            inner: HashMap::new(),
            opaque: false,
            gone: HashSet::new(),
            attributes,
        };
        Self { all: vec![root], way: Vec::new(), top }
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut Directory> {
        self.all.get_mut(number)
    }

    pub(super) fn above(&self, number: usize) -> usize {
        self.all.get(number).map_or(ROOT, |directory| directory.above)
    }

    pub(super) fn inner(&self, number: usize, name: &CString) -> Option<usize> {
        self.all.get(number)?.inner.get(name).copied()
    }

    /// Notes a directory that was just made.
    pub(super) fn add(&mut self, above: usize, name: CString, attributes: Attributes) -> usize {
        let number = self.all.len();
        if let Some(around) = self.all.get_mut(above) {
            around.inner.insert(name.clone(), number);
        }
        let length = self.path_length(above) + 1 + name.as_bytes().len();
        self.all.push(Directory {
            above,
            name,
            length,
            inner: HashMap::new(),
            opaque: false,
            gone: HashSet::new(),
            attributes,
        });
        number
    }

    /// Forgets a directory that is no longer there, with all in it.
    pub(super) fn forget(&mut self, above: usize, name: &CString) {
        let removed = self.all.get_mut(above).and_then(|around| around.inner.remove(name));
        if let Some(place) = self.way.iter().position(|(number, _)| Some(*number) == removed) {
            self.way.truncate(place);
        }
    }

    /// Opens a directory, beginning with the last one on its way that is open.
    pub(super) fn open(&mut self, number: usize) -> Result<BorrowedFd<'_>, Errno> {
        let mut missing = Vec::new();
        let mut here = number;
        let mut kept = 0;
        while here != ROOT {
            if let Some(place) = self.way.iter().rposition(|(open, _)| *open == here) {
                kept = place + 1;
                break;
            }
            missing.push(here);
            here = self.above(here);
        }
        self.way.truncate(kept);
        for next in missing.into_iter().rev() {
            let around = self.way.last().map_or_else(|| self.top.as_fd(), |(_, open)| open.as_fd());
            let name = self.all.get(next).map(|directory| directory.name.as_c_str());
            let opened = open(around, name.ok_or(Errno::NOENT)?)?;
            self.way.push((next, opened));
        }
        Ok(self.way.last().map_or_else(|| self.top.as_fd(), |(_, open)| open.as_fd()))
    }

    /// The names from the layer's own directory to this one.
    pub(super) fn path(&self, number: usize) -> Vec<&CString> {
        let mut path = Vec::new();
        let mut here = number;
        while let Some(directory) = self.all.get(here).filter(|_| here != ROOT) {
            path.push(&directory.name);
            here = directory.above;
        }
        path.reverse();
        path
    }

    /// How long the path to a directory is.
    pub(super) fn path_length(&self, number: usize) -> usize {
        self.all.get(number).map_or(0, |directory| directory.length)
    }

    /// Whether this layer lets nothing shine through under this name.
    pub(super) fn hides(&self, number: usize, name: &CString) -> bool {
        let named = self.all.get(number).is_some_and(|directory| directory.gone.contains(name));
        named || self.is_alone(number)
    }

    /// Whether nothing shines through in this directory.
    fn is_alone(&self, number: usize) -> bool {
        let mut here = number;
        loop {
            let Some(directory) = self.all.get(here) else { return false };
            if directory.opaque || here == ROOT {
                return directory.opaque;
            }
            here = directory.above;
        }
    }

    /// Those that are still there, each followed by what is in it.
    pub(super) fn present(&self) -> Vec<usize> {
        let (mut present, mut ahead) = (Vec::new(), vec![ROOT]);
        while let Some(number) = ahead.pop() {
            present.push(number);
            if let Some(directory) = self.all.get(number) {
                ahead.extend(directory.inner.values());
            }
        }
        present
    }
}
