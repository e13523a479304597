//! Removing directory trees that somebody hostile has built.

use std::{collections::VecDeque, ffi::CString, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, fchmod, openat, renameat_with,
        unlinkat,
    },
    io::Errno,
};

use crate::fs::PathError;

/// Removes a directory and all below it. Absence is success.
///
/// Neither depth nor breadth costs stack or descriptors: a directory that is not empty is moved
/// up beside the first one and waits for its turn, so a path of a million components is removed
/// like any other. Links are removed, never followed.
pub fn remove(path: &Path) -> Result<(), PathError> {
    let named = |error: Errno| PathError::new("remove directory", path, error.into());
    let top = match open(&CWD, path) {
        Err(Errno::NOENT) => return Ok(()),
        result => result.map_err(named)?,
    };
    let mut waiting = VecDeque::new();
    let mut moved = 0_u64;
    empty(&top, &top, &mut waiting, &mut moved).map_err(named)?;
    while let Some(name) = waiting.pop_front() {
        let directory = open(&top, name.as_c_str()).map_err(named)?;
        empty(&top, &directory, &mut waiting, &mut moved).map_err(named)?;
        unlinkat(&top, name.as_c_str(), AtFlags::REMOVEDIR).map_err(named)?;
    }
    unlinkat(CWD, path, AtFlags::REMOVEDIR).map_err(named)
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

/// Removes what is in `directory`, moving directories with content to `top` under fresh names.
fn empty(
    top: &OwnedFd,
    directory: &OwnedFd,
    waiting: &mut VecDeque<CString>,
    moved: &mut u64,
) -> Result<(), Errno> {
    // Without these bits even its owner could not list or change it; the kernel's own overlay
    // work directory has none.
    fchmod(directory, Mode::RWXU)?;
    let mut own: Vec<(CString, FileType)> = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            own.push((name.to_owned(), entry.file_type()));
        }
    }
    for (name, kind) in own {
        let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match unlinkat(directory, name.as_c_str(), flags) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ISDIR) => {
                let aside = loop {
                    *moved += 1;
                    let aside =
                        CString::new(format!(".removed-{moved}")).map_err(|_| Errno::INVAL)?;
                    match renameat_with(
                        directory,
                        name.as_c_str(),
                        top,
                        aside.as_c_str(),
                        RenameFlags::NOREPLACE,
                    ) {
                        Ok(()) => break aside,
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                    }
                };
                waiting.push_back(aside);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
