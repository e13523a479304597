//! How much a tree takes that somebody hostile has built, and may be changing meanwhile.

use std::{collections::HashSet, os::fd::AsFd};

use rustix::{
    fs::{AtFlags, Dir, FileType, fstat, statat},
    io::Errno,
};

use super::open;

/// How deep a tree may be: each directory on the way down is one that is open.
const MAX_DEPTH: usize = 64;
/// The unit of [`rustix::fs::Stat::st_blocks`], whatever the file system's own is.
const BLOCK: u64 = 512;

/// The bytes that `directory` and all below it take on the disk. What has several names is counted
/// once, and links are not followed.
///
/// `entries` is how many may be looked at, and what is left of that afterwards. `None` if there are
/// more, if they lie too deep, or if something cannot be looked at.
pub fn size(directory: impl AsFd, entries: &mut u32) -> Option<u64> {
    let mut linked = HashSet::new();
    let mut bytes = taken(&fstat(&directory).ok()?);
    let mut way = vec![Dir::new(open(&directory, c".").ok()?).ok()?];
    while let Some(here) = way.last_mut() {
        let Some(entry) = here.next() else {
            way.pop();
            continue;
        };
        let entry = entry.ok()?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        *entries = entries.checked_sub(1)?;
        let here = here.fd().ok()?;
        let found = match statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            result => result.ok()?,
        };
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if !is_directory && found.st_nlink > 1 && !linked.insert(found.st_ino) {
            continue;
        }
        bytes = bytes.saturating_add(taken(&found));
        if is_directory {
            match open(&here, name) {
                Ok(_) if way.len() == MAX_DEPTH => return None,
                Ok(next) => way.push(Dir::new(next).ok()?),
                // It was removed or replaced since it was looked at.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(_) => return None,
            }
        }
    }
    Some(bytes)
}

fn taken(found: &rustix::fs::Stat) -> u64 {
    u64::try_from(found.st_blocks).unwrap_or(0).saturating_mul(BLOCK)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::fs::{CWD, Mode, mkdirat};

    use super::*;

    fn measure(path: &Path, mut entries: u32) -> Option<u64> {
        size(open(&CWD, path).unwrap(), &mut entries)
    }

    #[test]
    fn what_a_tree_takes_is_counted_once_and_nothing_outside() {
        let root = tempfile::tempdir().unwrap();
        let (tree, other) = (root.path().join("tree"), root.path().join("other"));
        crate::fs::create_dir_all(tree.join("a/b")).unwrap();
        crate::fs::create_dir_all(&other).unwrap();
        let empty = measure(&tree, 10).unwrap();
        crate::fs::write(tree.join("a/b/file"), vec![1; 1 << 20]).unwrap();
        crate::fs::write(other.join("large"), vec![1; 8 << 20]).unwrap();
        crate::fs::symlink(&other, tree.join("link")).unwrap();
        rustix::fs::link(tree.join("a/b/file"), tree.join("again")).unwrap();
        let full = measure(&tree, 10).unwrap();
        assert!((1 << 20..2 << 20).contains(&(full - empty)), "{empty} {full}");
    }

    #[test]
    fn what_is_too_much_is_not_counted() {
        let root = tempfile::tempdir().unwrap();
        for name in 0..10 {
            crate::fs::write(root.path().join(name.to_string()), "").unwrap();
        }
        assert!(measure(root.path(), 10).is_some());
        assert_eq!(measure(root.path(), 9), None);
        let mut at = open(&CWD, root.path()).unwrap();
        for _ in 0..MAX_DEPTH {
            mkdirat(&at, c"d", Mode::RWXU).unwrap();
            at = open(&at, c"d").unwrap();
        }
        assert_eq!(measure(root.path(), 1000), None);
    }
}
