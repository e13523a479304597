//! All that can be told of a tree of files.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
};

use osb_registry::Digest;
use osb_sys::{
    fs,
    mount::{self, Attributes, FsOption},
};
use rustix::fs::{Dir, Mode, OFlags, lgetxattr, llistxattr};

/// What is told of each path.
pub(crate) struct Tree(BTreeMap<Vec<u8>, Told>);

#[derive(Debug, PartialEq, Eq)]
struct Told {
    what: String,
    /// Unless it is a directory that was changed just now: of one that is in no archive nobody says
    /// what time it has.
    modified: Option<(i64, i64)>,
}

/// What was made by an archive is older than this.
const JUST_NOW: i64 = 1_500_000_000;

impl Tree {
    pub(crate) fn of(directory: &Path) -> Self {
        let mut tree = Self(BTreeMap::new());
        let mut names = HashMap::new();
        tree.add(directory, b".", &mut names);
        tree
    }

    /// What the kernel shows of layers, topmost first.
    pub(crate) fn of_layers(layers: &[PathBuf]) -> Self {
        let empty = tempfile::tempdir_in("/var/tmp").unwrap();
        let all = layers.iter().map(PathBuf::as_path).chain([empty.path()]);
        let all: Vec<_> = all.map(|layer| layer.to_str().unwrap()).collect();
        // The names of many layers are longer than an option may be; one at a time they are not.
        let options: Vec<_> = all.iter().map(|layer| FsOption::Text("lowerdir+", layer)).collect();
        let root = mount::filesystem("overlay", &options, Attributes::MOUNT_ATTR_RDONLY).unwrap();
        Self::of(Path::new(&format!("/proc/self/fd/{}/", root.as_raw_fd())))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Fails with every difference.
    pub(crate) fn compare(&self, other: &Self) {
        self.compare_but(other, &[]);
    }

    /// Fails with every difference but these, and if one of these is none.
    pub(crate) fn compare_but(&self, other: &Self, known: &[String]) {
        let mut differences = Vec::new();
        let mut missed: Vec<_> = known.iter().map(String::as_bytes).collect();
        for path in self.0.keys().chain(other.0.keys().filter(|path| !self.0.contains_key(*path))) {
            let (ours, theirs) = (self.0.get(path), other.0.get(path));
            let is_said = theirs.is_none_or(|theirs| theirs.modified.is_some());
            let modified = |told: Option<&Told>| told.filter(|_| is_said).map(|told| told.modified);
            let what = |told: Option<&Told>| told.map(|told| told.what.clone());
            if what(ours) == what(theirs) && modified(ours) == modified(theirs) {
                continue;
            }
            if let Some(at) = missed.iter().position(|known| known == path) {
                missed.swap_remove(at);
            } else {
                let path = String::from_utf8_lossy(path);
                differences.push(format!("{path}:\n  ours   {ours:?}\n  theirs {theirs:?}"));
            }
        }
        differences.extend(missed.iter().map(|path| {
            format!("{}: is the same, though it is said to differ", String::from_utf8_lossy(path))
        }));
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }

    fn add(&mut self, path: &Path, shown: &[u8], names: &mut HashMap<u64, Vec<u8>>) {
        let metadata = path.symlink_metadata().unwrap();
        let mut told = format!("{:o} {}:{}", metadata.mode(), metadata.uid(), metadata.gid());
        if metadata.is_file() {
            told = format!("{told} {} {}", metadata.len(), Digest::of(&fs::read(path).unwrap()));
        }
        if metadata.is_symlink() {
            told = format!("{told} -> {}", path.read_link().unwrap().display());
        } else if !metadata.is_dir() {
            let first = names.entry(metadata.ino()).or_insert_with(|| shown.to_vec());
            told = format!("{told} is {}", String::from_utf8_lossy(first));
        }
        told += &attributes(path);
        let modified = Some((metadata.mtime(), metadata.mtime_nsec()));
        let modified = modified.filter(|(at, _)| !metadata.is_dir() || *at < JUST_NOW);
        self.0.insert(shown.to_vec(), Told { what: told, modified });
        if metadata.is_dir() {
            for name in list(path) {
                let inner = [shown, b"/", &name].concat();
                self.add(&path.join(OsStr::from_bytes(&name)), &inner, names);
            }
        }
    }
}

/// The names in a directory, sorted.
fn list(path: &Path) -> Vec<Vec<u8>> {
    let open = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let mut names: Vec<_> = Dir::read_from(&open)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_bytes().to_vec())
        .filter(|name| !matches!(name.as_slice(), b"." | b".."))
        .collect();
    names.sort();
    names
}

fn attributes(path: &Path) -> String {
    let mut names = [0; 4096];
    let count = llistxattr(path, &mut names[..]).unwrap();
    let mut told = String::new();
    let mut names: Vec<_> = names[..count].split(|byte| *byte == 0).collect();
    names.sort_unstable();
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        if name.starts_with(b"trusted.overlay.") || name == b"security.selinux" {
            continue;
        }
        let mut value = [0; 4096];
        let count = lgetxattr(path, name, &mut value[..]).unwrap();
        told = format!("{told} {}={:?}", String::from_utf8_lossy(name), &value[..count]);
    }
    told
}
