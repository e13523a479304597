//! Paths that stay below a directory, whatever somebody hostile puts in their way meanwhile.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, StatxFlags, Uid,
        fchmod, fchown, fstat, mkdirat, openat, openat2, readlinkat, statx,
    },
    io::Errno,
};

use crate::fs::PathError;

/// How many directories and links a way may have.
const MAX_STEPS: usize = 512;

/// Names what is at `path` below `directory`, without opening it. Links are followed as long as
/// they stay below; one that leads out is an error, and so is a path with `..` that does.
pub fn open(directory: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    open_as(directory, path, OFlags::PATH)
}

/// The content of the ordinary file of at most `limit` bytes at `path` below `directory`. Links are
/// followed as [`open`] does.
pub fn read(directory: &Path, path: &Path, limit: usize) -> Result<Vec<u8>, PathError> {
    let content = || {
        let around = openat(CWD, directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        // Opening a pipe would otherwise wait for somebody to write to it.
        let file = File::from(open_as(around, path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > limit as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not an ordinary, small file"));
        }
        let mut content = Vec::with_capacity(limit);
        file.take(limit as u64).read_to_end(&mut content)?;
        Ok(content)
    };
    content().map_err(|source| PathError::new("read", directory.join(path), source))
}

fn open_as(directory: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // The kernel gives up with AGAIN when something was renamed meanwhile.
    for _ in 0..32 {
        match openat2(&directory, path, flags | OFlags::CLOEXEC, Mode::empty(), below) {
            Err(Errno::AGAIN) => {}
            result => return Ok(result?),
        }
    }
    Err(Errno::AGAIN.into())
}

/// Opens the ordinary file or the directory at `path` for somebody whose root is `root`: links are
/// followed, and absolute ones begin there. Whatever lies on another mount is not found, be it a volume
/// or one of the kernel's own files. It does without `openat2`, which not every sandbox may call.
pub fn open_within(root: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mount = mount_of(&root)?;
    let (mut ahead, mut here) = (reversed(path), vec![root.as_fd().try_clone_to_owned()?]);
    for _ in 0..MAX_STEPS {
        let around = here.last().ok_or(Errno::NOENT)?;
        let Some(name) = ahead.pop() else {
            return Ok(openat(around, c".", flags, Mode::empty())?);
        };
        match name.as_encoded_bytes() {
            b"/" => here.truncate(1),
            b".." => here.truncate((here.len() - 1).max(1)),
            b"." => {}
            _ => {
                let named = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let next = openat(around, &name, named, Mode::empty())?;
                if mount_of(&next)? != mount {
                    return Err(Errno::XDEV.into());
                }
                match FileType::from_raw_mode(fstat(&next)?.st_mode) {
                    FileType::Symlink => ahead.extend(reversed(&target(&next)?)),
                    FileType::Directory => here.push(next),
                    FileType::RegularFile if ahead.is_empty() => {
                        let opened = openat(around, &name, flags, Mode::empty())?;
                        let (one, other) = (fstat(&next)?, fstat(&opened)?);
                        let is_same = mount_of(&opened)? == mount && one.st_mode == other.st_mode;
                        return if is_same { Ok(opened) } else { Err(Errno::AGAIN.into()) };
                    }
                    FileType::RegularFile
                    | FileType::Fifo
                    | FileType::Socket
                    | FileType::CharacterDevice
                    | FileType::BlockDevice
                    | FileType::Unknown => return Err(Errno::NOTDIR.into()),
                }
            }
        }
    }
    Err(Errno::LOOP.into())
}

/// Makes an empty file at `path`, which begins at `root`, and the directories on the way to it that are
/// missing. Nothing is made through a link, nor on another mount. It does without `openat2`, too.
pub fn make_file(root: &Path, path: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here = openat(CWD, root, flags, Mode::empty())?;
    let mount = mount_of(&here)?;
    let (Some(around), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    for part in around.components() {
        match part {
            Component::RootDir | Component::CurDir => continue,
            Component::ParentDir | Component::Prefix(_) => return Err(Errno::INVAL.into()),
            Component::Normal(name) => {
                match mkdirat(&here, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                here = openat(&here, name, flags, Mode::empty())?;
            }
        }
        if mount_of(&here)? != mount {
            return Err(Errno::XDEV.into());
        }
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(&here, name, flags, Mode::from_raw_mode(0o644))?;
    Ok(())
}

fn mount_of(file: impl AsFd) -> io::Result<u64> {
    let known = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let is_told = known.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    if is_told { Ok(known.stx_mnt_id) } else { Err(Errno::NOSYS.into()) }
}

/// What a link says.
fn target(link: &OwnedFd) -> io::Result<PathBuf> {
    let content = readlinkat(link, c"", Vec::new())?.into_bytes();
    Ok(OsString::from_vec(content).into())
}

/// The parts of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// The directories and links by which `path` leads from `directory` to what was found there, as they
/// are now, without the found thing itself. Fails if it leads elsewhere by now.
pub fn way(directory: &OwnedFd, path: &Path, found: &OwnedFd) -> io::Result<Vec<Stat>> {
    let (mut ahead, mut way) = (reversed(path), Vec::new());
    let mut here = vec![directory.try_clone()?];
    while let Some(name) = ahead.pop() {
        let around = here.last().ok_or(Errno::XDEV)?;
        if name == "/" || way.len() >= MAX_STEPS {
            return Err(Errno::LOOP.into());
        }
        way.push(fstat(around)?);
        if name == ".." {
            here.pop();
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = openat(around, &name, flags, Mode::empty())?;
        let entry = fstat(&next)?;
        if FileType::from_raw_mode(entry.st_mode) == FileType::Symlink {
            way.push(entry);
            ahead.extend(reversed(&target(&next)?));
        } else {
            here.push(next);
        }
    }
    let (one, other) = (fstat(here.last().ok_or(Errno::XDEV)?)?, fstat(found)?);
    let is_same = (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino);
    if is_same { Ok(way) } else { Err(Errno::AGAIN.into()) }
}

/// As [`open`]; directories that are missing are made, each for the owner of the one around it.
pub fn open_or_make(directory: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    match open(&directory, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    let mut parent = open(&directory, Path::new("."))?;
    let mut walked = PathBuf::new();
    for part in path.components() {
        let Component::Normal(name) = part else { continue };
        walked.push(name);
        parent = match open(&directory, &walked) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(&parent, name)?;
                open(&directory, &walked)?
            }
            result => result?,
        };
    }
    Ok(parent)
}

fn make(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match mkdirat(parent, name, Mode::RWXU) {
        // Somebody else made it, or a link to nowhere has this name and cannot be opened.
        Err(Errno::EXIST) => return Ok(()),
        result => result?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(parent, name, flags, Mode::empty())?;
    // Whoever may write to the parent may have put another directory in its place. One of ours
    // that is empty gives away nothing.
    let is_new = fstat(&made)?.st_uid == rustix::process::geteuid().as_raw() && is_empty(&made)?;
    if !is_new {
        return Err(io::Error::other("a directory was replaced while it was made"));
    }
    let around = fstat(parent)?;
    fchmod(&made, Mode::from_raw_mode(0o755))?;
    fchown(&made, Some(Uid::from_raw(around.st_uid)), Some(Gid::from_raw(around.st_gid)))?;
    Ok(())
}

fn is_empty(directory: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn place() -> (tempfile::TempDir, OwnedFd) {
        let root = tempfile::tempdir().unwrap();
        for name in ["in/a", "out"] {
            crate::fs::create_dir_all(root.path().join(name)).unwrap();
        }
        crate::fs::write(root.path().join("out/secret"), "x").unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, root.path().join("in"), flags, Mode::empty()).unwrap();
        (root, directory)
    }

    fn same(one: &OwnedFd, path: &Path) -> bool {
        let (one, other) = (fstat(one).unwrap(), rustix::fs::stat(path).unwrap());
        (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
    }

    #[test]
    fn only_what_lies_below_is_found() {
        let (root, directory) = place();
        let at = |name: &str| root.path().join("in").join(name);
        crate::fs::symlink("a", at("inner")).unwrap();
        crate::fs::symlink("../out", at("outer")).unwrap();
        crate::fs::symlink(root.path().join("out"), at("absolute")).unwrap();
        assert!(same(&open(&directory, Path::new("inner")).unwrap(), &at("a")));
        assert!(same(&open(&directory, Path::new("")).unwrap(), &at("")));
        for path in ["..", "../out", "outer", "outer/secret", "absolute", "a/../../out", "/etc"] {
            assert!(open(&directory, Path::new(path)).is_err(), "{path} was opened");
            assert!(open_or_make(&directory, Path::new(path)).is_err(), "{path} was opened");
        }
    }

    #[test]
    fn a_file_is_made_through_no_link_and_on_no_other_mount() {
        let (root, _) = place();
        let inside = root.path().join("in");
        crate::fs::symlink("../out", inside.join("outer")).unwrap();
        crate::fs::symlink("a", inside.join("inner")).unwrap();
        crate::fs::symlink("nowhere", inside.join("a/link")).unwrap();
        make_file(&inside, Path::new("/b/c/file")).unwrap();
        assert_eq!(crate::fs::read(inside.join("b/c/file")).unwrap(), b"");
        for path in
            ["outer/file", "outer/b/file", "inner/file", "a/link", "../out/file", "b/c/file"]
        {
            assert!(make_file(&inside, Path::new(path)).is_err(), "{path} was made");
        }
        assert_eq!(crate::fs::names(root.path().join("out")).unwrap(), ["secret"]);
        assert_eq!(crate::fs::names(inside.join("a")).unwrap(), ["link"]);
        let name = format!("/dev/shm/{}", root.path().file_name().unwrap().display());
        assert!(make_file(Path::new("/"), Path::new(&name)).is_err());
        assert!(!Path::new(&name).exists());
    }

    #[test]
    fn only_ordinary_files_below_are_read() {
        let (root, _) = place();
        let inside = root.path().join("in");
        crate::fs::write(inside.join("a/token"), "hunter2").unwrap();
        crate::fs::symlink("a/token", inside.join("inner")).unwrap();
        crate::fs::symlink("../out/secret", inside.join("outer")).unwrap();
        for path in ["a/token", "inner"] {
            assert_eq!(read(&inside, Path::new(path), 7).unwrap(), b"hunter2");
        }
        assert!(read(&inside, Path::new("inner"), 6).is_err());
        for path in ["outer", "../out/secret", "/etc/hostname", "a", "missing", ""] {
            assert!(read(&inside, Path::new(path), 99).is_err(), "{path} was read");
        }
    }

    #[test]
    fn within_a_root_links_lead_nowhere_else() {
        let (root, _) = place();
        let inside = root.path().join("in");
        crate::fs::write(inside.join("a/token"), "hunter2").unwrap();
        crate::fs::symlink("/a/token", inside.join("absolute")).unwrap();
        crate::fs::symlink("../../../a/token", inside.join("above")).unwrap();
        let directory = openat(CWD, &inside, OFlags::PATH, Mode::empty()).unwrap();
        let find = |path: &str| open_within(&directory, Path::new(path), OFlags::RDONLY);
        for path in ["/a/token", "absolute", "above", "a/../a/./token"] {
            assert!(same(&find(path).unwrap(), &inside.join("a/token")), "{path}");
        }
        assert!(same(&find("../..").unwrap(), &inside));
        crate::fs::symlink("loop", inside.join("loop")).unwrap();
        rustix::fs::mknodat(CWD, inside.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        for path in ["/out/secret", "loop", "pipe", "missing", "a/token/x"] {
            assert!(find(path).is_err(), "{path} was opened");
        }
        let everything = openat(CWD, "/", OFlags::PATH, Mode::empty()).unwrap();
        for path in ["/proc/self/maps", "/proc/self/root", "/proc"] {
            assert!(open_within(&everything, Path::new(path), OFlags::RDONLY).is_err(), "{path}");
        }
    }

    #[test]
    fn a_way_has_every_directory_and_link_on_it() {
        let (root, directory) = place();
        let at = |name: &str| root.path().join("in").join(name);
        crate::fs::create_dir_all(at("a/b/c")).unwrap();
        crate::fs::symlink("a/b/../b", at("short")).unwrap();
        crate::fs::symlink("loop", at("loop")).unwrap();
        let found = open(&directory, Path::new("short/c")).unwrap();
        let seen = way(&directory, Path::new("short/c"), &found).unwrap();
        let seen: Vec<_> = seen.iter().map(|entry| entry.st_ino).collect();
        let expected = ["", "short", "", "a", "a/b", "a", "a/b"];
        let expected = expected.map(|name| rustix::fs::lstat(at(name)).unwrap().st_ino);
        assert_eq!(seen, expected);
        let itself = open(&directory, Path::new("")).unwrap();
        assert!(way(&directory, Path::new(""), &itself).unwrap().is_empty());
        for path in ["a", "loop", "..", "../in", "/", "missing", "short/c/../../.."] {
            assert!(way(&directory, Path::new(path), &found).is_err(), "{path}");
        }
        crate::fs::rename(at("a"), root.path().join("out/a")).unwrap();
        assert!(way(&directory, Path::new("short/c"), &found).is_err());
    }

    #[test]
    fn missing_directories_are_made_below() {
        let (root, directory) = place();
        let made = open_or_make(&directory, Path::new("a/b/c")).unwrap();
        assert!(same(&made, &root.path().join("in/a/b/c")));
        crate::fs::symlink("../out/new", root.path().join("in/dangling")).unwrap();
        assert!(open_or_make(&directory, Path::new("dangling")).is_err());
        assert!(open_or_make(&directory, Path::new("dangling/x")).is_err());
        assert!(!root.path().join("out/new").exists());
    }

    #[test]
    fn a_directory_that_is_swapped_for_a_link_never_leads_out() {
        let (root, directory) = place();
        let (stop, swaps) = (AtomicBool::new(false), AtomicBool::new(false));
        let at = |name: &str| root.path().join("in").join(name);
        crate::fs::symlink("../out", at("link")).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(CWD, at("a"), CWD, at("link"), flags).unwrap();
                    swaps.store(true, Ordering::Relaxed);
                }
            });
            let outside = root.path().join("out");
            for round in 0..20_000 {
                if let Ok(found) = open(&directory, Path::new("a")) {
                    assert!(!same(&found, &outside));
                }
                if let Ok(found) = open_or_make(&directory, &PathBuf::from(format!("a/{round}"))) {
                    assert!(!same(&found, &outside));
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(swaps.load(Ordering::Relaxed));
        assert_eq!(crate::fs::names(root.path().join("out")).unwrap(), ["secret"]);
    }
}
