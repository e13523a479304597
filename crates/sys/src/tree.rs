//! Directory trees that somebody hostile has built: removing and measuring them.

mod size;

use std::{
    ffi::{CStr, CString},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, fchmod, openat, renameat_with,
        unlinkat,
    },
    io::Errno,
};

pub use self::size::size;
use crate::fs::PathError;

/// How many names are held in memory at a time.
const BATCH: usize = 1024;

/// Removes a directory and all below it. Absence is success.
///
/// Neither depth nor breadth costs stack, descriptors or memory: a directory that is not empty is
/// moved up beside the first one, under a number, and waits for its turn, so a path of a million
/// components is removed like any other. Links are removed, never followed.
pub fn remove(path: &Path) -> Result<(), PathError> {
    let named = |error: Errno| PathError::new("remove directory", path, error.into());
    let top = match open(&CWD, path) {
        Err(Errno::NOENT) => return Ok(()),
        result => result.map_err(named)?,
    };
    let mut moved = 0_u64;
    empty(&top, &top, &mut moved).map_err(named)?;
    let mut next = 1;
    while next <= moved {
        match open(&top, aside(next).as_str()) {
            Ok(directory) => {
                empty(&top, &directory, &mut moved).map_err(named)?;
                unlinkat(&top, aside(next).as_str(), AtFlags::REMOVEDIR).map_err(named)?;
            }
            // A number that was passed over, because something else has that name or had it.
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => {
                unlinkat(&top, aside(next).as_str(), AtFlags::empty()).map_err(named)?;
            }
            Err(error) => return Err(named(error)),
        }
        next += 1;
    }
    match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        // Somebody else was quicker.
        Err(Errno::NOENT) => Ok(()),
        result => result.map_err(named),
    }
}

fn aside(number: u64) -> String {
    format!(".removed-{number}")
}

fn open(
    at: &(impl std::os::fd::AsFd + ?Sized),
    path: impl rustix::path::Arg,
) -> Result<OwnedFd, Errno> {
    openat(
        at,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Removes what is in `directory`, moving directories with content to `top` under fresh numbers.
fn empty(top: &OwnedFd, directory: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    // Without these bits even its owner could not list or change it; the kernel's own overlay
    // work directory has none. Whoever is not the owner has to do with what rights it has.
    match fchmod(directory, Mode::RWXU) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let (at_top, before) = (std::ptr::eq(top, directory), *moved);
    loop {
        let mut batch: Vec<(CString, FileType)> = Vec::new();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." && !(at_top && is_aside(name, before, *moved)) {
                batch.push((name.to_owned(), entry.file_type()));
            }
            if batch.len() == BATCH {
                break;
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        for (name, kind) in batch {
            remove_entry(top, directory, &name, kind, moved)?;
        }
    }
}

/// Whether this is what we moved into `top` while emptying it.
fn is_aside(name: &CStr, before: u64, moved: u64) -> bool {
    let number = name.to_str().ok().and_then(|name| name.strip_prefix(".removed-")?.parse().ok());
    number.is_some_and(|number: u64| number > before && number <= moved)
}

fn remove_entry(
    top: &OwnedFd,
    directory: &OwnedFd,
    name: &CStr,
    kind: FileType,
    moved: &mut u64,
) -> Result<(), Errno> {
    let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match unlinkat(directory, name, flags) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ISDIR) => {}
        Err(error) => return Err(error),
    }
    let mut made_movable = false;
    loop {
        *moved += 1;
        let place = aside(*moved);
        match renameat_with(directory, name, top, place.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            // Only what may be written may be moved, unless by root; the owner may change that.
            Err(Errno::ACCESS) if !made_movable => {
                fchmod(open(directory, name)?, Mode::RWXU).map_err(|_| Errno::ACCESS)?;
                made_movable = true;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkdirat;

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let victim = root.path().join("victim");
        crate::fs::create_dir(&victim, 0o700).unwrap();
        let mut at = open(&CWD, &victim).unwrap();
        // A path has at most 4096 bytes, and this process fewer descriptors than that.
        for _ in 0..3_000 {
            mkdirat(&at, c"d", Mode::RWXU).unwrap();
            at = open(&at, c"d").unwrap();
        }
        remove(&victim).unwrap();
        assert!(!victim.exists());
    }

    #[test]
    fn links_out_of_the_tree_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (victim, other) = (root.path().join("victim"), root.path().join("other"));
        crate::fs::create_dir_all(victim.join("a/b")).unwrap();
        crate::fs::create_dir_all(&other).unwrap();
        crate::fs::write(other.join("kept"), "x").unwrap();
        crate::fs::symlink(&other, victim.join("a/link")).unwrap();
        crate::fs::write(victim.join("a/b/.removed-1"), "in the way").unwrap();
        crate::fs::create_dir_all(victim.join(".removed-1/x")).unwrap();
        crate::fs::write(victim.join(".removed-2"), "in the way too").unwrap();
        crate::fs::symlink(&other, victim.join(".removed-3")).unwrap();
        for name in 0..5000 {
            crate::fs::write(victim.join("a").join(name.to_string()), "").unwrap();
        }
        crate::fs::set_mode(victim.join("a/b"), 0).unwrap();
        remove(&victim).unwrap();
        assert!(!victim.exists());
        assert!(other.join("kept").exists());
    }

    #[test]
    fn absence_is_success() {
        remove(Path::new("/nonexistent/osb")).unwrap();
    }
}
