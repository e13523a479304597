use std::{
    collections::BinaryHeap,
    ffi::{CStr, CString},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2,
        statx,
    },
    io::Errno,
};

/// The longest path below the top, less than what the kernel takes. What is deeper is shown but
/// not entered: nobody could name what is in it.
const LONGEST: usize = 4000;

/// The most memory that names of one walk may take.
const NAMES: usize = 8 << 20;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// A walk through all that is below a directory: sorted by name, what is in a directory right
/// after the directory.
///
/// It follows no links, passes over what vanishes or may not be seen, and needs the same memory
/// and the same two descriptors however deep and however wide the tree is: of a directory with
/// more names than it may hold it takes the first ones, and reads it again for the next.
#[derive(Debug)]
pub(super) struct Walk {
    top: OwnedFd,
    /// The directories from the top to where the walk is.
    levels: Vec<Level>,
    /// The innermost of them, once it is open.
    here: Option<OwnedFd>,
    /// Its path below the top.
    path: Vec<u8>,
    /// Whether what was shown last is a directory to go on with.
    enter: bool,
    /// What is known of what was shown last.
    shown: Option<Statx>,
    deepest: usize,
    /// The memory that the names of all levels take.
    held: usize,
    /// The most that it may be.
    most: usize,
    /// Whether something that is there was not seen.
    missed: bool,
}

#[derive(Debug, Default)]
struct Level {
    /// How long the path of the directory around it is.
    outer: usize,
    /// The next names, the first one last.
    names: Vec<CString>,
    /// The last name that was taken.
    after: Option<CString>,
    /// Whether `names` has all that follow.
    complete: bool,
}

/// What a walk comes by.
pub(super) enum Step<'a> {
    Entry(Entry<'a>),
    /// All of the directory that was entered last, and not left yet, has been seen.
    Left,
}

pub(super) struct Entry<'a> {
    /// The directory that it is in.
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: &'a CStr,
    pub(super) status: &'a Statx,
    /// The path of the directory below the top.
    parent: &'a [u8],
}

impl Entry<'_> {
    /// The path below the top.
    pub(super) fn path(&self) -> Vec<u8> {
        joined(self.parent, self.name)
    }

    pub(super) fn kind(&self) -> FileType {
        kind(self.status)
    }
}

impl Walk {
    /// Begins at a directory, to go `deepest` levels down.
    pub(super) fn new(top: &Path, deepest: usize) -> Result<Self, Errno> {
        let top = openat(rustix::fs::CWD, top, DIRECTORY, Mode::empty())?;
        let levels = if deepest > 0 { vec![Level::default()] } else { Vec::new() };
        Ok(Self {
            top,
            levels,
            here: None,
            path: Vec::new(),
            enter: false,
            shown: None,
            deepest,
            held: 0,
            most: NAMES,
            missed: false,
        })
    }

    /// Whether something that is there could not be seen: for lack of rights, or of a path that the
    /// kernel would take.
    pub(super) fn missed(&self) -> bool {
        self.missed
    }

    /// The next step, until everything has been seen.
    pub(super) fn next(&mut self) -> Option<Step<'_>> {
        if std::mem::take(&mut self.enter) && !self.descend()? {
            return Some(Step::Left);
        }
        let status = loop {
            let level = self.levels.last_mut()?;
            if let Some(name) = level.names.pop() {
                self.held -= cost(&name);
                if let Some(status) = self.status(&name) {
                    self.levels.last_mut()?.after = Some(name);
                    break status;
                }
            } else if level.complete {
                self.path.truncate(level.outer);
                self.levels.pop();
                self.here = None;
                if !self.levels.is_empty() {
                    return Some(Step::Left);
                }
            } else {
                self.fill();
            }
        };
        self.enter = kind(&status) == FileType::Directory && self.levels.len() < self.deepest;
        let name = self.levels.last()?.after.as_deref()?;
        let directory = self.here.as_ref()?.as_fd();
        let status = self.shown.insert(status);
        Some(Step::Entry(Entry { directory, name, status, parent: &self.path }))
    }

    /// Goes into the directory that was shown last, and says whether it could.
    fn descend(&mut self) -> Option<bool> {
        let name = self.levels.last()?.after.as_deref()?;
        let path = joined(&self.path, name);
        let opened = if path.len() > LONGEST {
            Err(Errno::NAMETOOLONG)
        } else {
            openat(self.here.as_ref()?, name, DIRECTORY, Mode::empty())
        };
        match opened {
            Ok(opened) => {
                self.levels.push(Level { outer: self.path.len(), ..Level::default() });
                (self.here, self.path) = (Some(opened), path);
                Some(true)
            }
            Err(error) => {
                self.missed |= error != Errno::NOENT;
                Some(false)
            }
        }
    }

    fn status(&mut self, name: &CStr) -> Option<Statx> {
        let here = self.here()?;
        match status(here, name) {
            Ok(status) => Some(status),
            Err(error) => {
                self.missed |= error != Errno::NOENT;
                None
            }
        }
    }

    /// The innermost directory, opened again from the top if need be.
    fn here(&mut self) -> Option<BorrowedFd<'_>> {
        if self.here.is_none() {
            let path = if self.path.is_empty() { b".".as_slice() } else { &self.path };
            let opened = open_below(&self.top, path);
            self.missed |= opened.is_err();
            self.here = opened.ok();
        }
        self.here.as_ref().map(AsFd::as_fd)
    }

    /// Reads the next names of the innermost directory.
    fn fill(&mut self) {
        let after = self.levels.last_mut().and_then(|level| level.after.take());
        let most = self.most / 2;
        let listed = self.here().and_then(|here| first_names(here, after.as_deref(), most).ok());
        self.missed |= listed.is_none();
        let (names, complete) = listed.unwrap_or((Vec::new(), true));
        let Some(level) = self.levels.last_mut() else { return };
        level.after = after;
        self.held += names.iter().map(|name| cost(name)).sum::<usize>();
        (level.names, level.complete) = (names, complete);
        // The outermost wait longest for their turn.
        let inner = self.levels.len().saturating_sub(1);
        for level in self.levels.iter_mut().take(inner) {
            if self.held <= self.most {
                break;
            }
            if !level.names.is_empty() {
                self.held -= level.names.drain(..).map(|name| cost(&name)).sum::<usize>();
                level.names.shrink_to_fit();
                level.complete = false;
            }
        }
    }
}

/// Opens a directory below another, through no link.
fn open_below(top: impl AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(&top, path, DIRECTORY, Mode::empty(), resolve) {
        Err(Errno::NOSYS) => {}
        result => return result,
    }
    // Not every sandbox may call that.
    let mut here = openat(top, c".", DIRECTORY, Mode::empty())?;
    for name in path.split(|byte| *byte == b'/') {
        here = openat(&here, name, DIRECTORY, Mode::empty())?;
    }
    Ok(here)
}

/// What the kernel knows of a name, a link itself and not what it points to.
pub(super) fn status(directory: impl AsFd, name: impl rustix::path::Arg) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(directory, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

pub(super) fn kind(status: &Statx) -> FileType {
    FileType::from_raw_mode(status.stx_mode.into())
}

/// The first names after one that take at most so much memory, in descending order, and whether
/// they are all that follow.
fn first_names(
    directory: BorrowedFd<'_>,
    after: Option<&CStr>,
    most: usize,
) -> Result<(Vec<CString>, bool), Errno> {
    let (mut first, mut held, mut complete) = (BinaryHeap::new(), 0, true);
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." || after.is_some_and(|after| name <= after) {
            continue;
        }
        held += cost(name);
        first.push(name.to_owned());
        while held > most {
            let Some(last) = first.pop() else { break };
            held -= cost(&last);
            complete = false;
        }
    }
    let mut names = first.into_sorted_vec();
    names.reverse();
    Ok((names, complete))
}

/// The memory that a name takes, with what surrounds it.
fn cost(name: &CStr) -> usize {
    name.count_bytes() + 48
}

fn joined(directory: &[u8], name: &CStr) -> Vec<u8> {
    let mut path = directory.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.to_bytes());
    path
}

/// A path below a directory, as a path.
pub(super) fn below(top: &Path, path: &[u8]) -> std::path::PathBuf {
    top.join(std::ffi::OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use osb_sys::fs;

    use super::*;

    fn seen(top: &Path, deepest: usize) -> Vec<String> {
        let mut walk = Walk::new(top, deepest).unwrap();
        let mut seen = Vec::new();
        while let Some(step) = walk.next() {
            seen.push(match step {
                Step::Entry(entry) => String::from_utf8(entry.path()).unwrap(),
                Step::Left => "<".to_owned(),
            });
        }
        seen
    }

    #[test]
    fn a_tree_is_seen_in_order_and_every_directory_is_left() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("b/x/y")).unwrap();
        fs::create_dir_all(top.path().join("b/z")).unwrap();
        for file in ["a", "b/k", "b/x/f", "c", "b.txt"] {
            fs::write(top.path().join(file), "").unwrap();
        }
        fs::symlink("b", top.path().join("l")).unwrap();
        assert_eq!(
            seen(top.path(), usize::MAX),
            [
                "a", "b", "b/k", "b/x", "b/x/f", "b/x/y", "<", "<", "b/z", "<", "<", "b.txt", "c",
                "l"
            ]
        );
        assert_eq!(seen(top.path(), 2), ["a", "b", "b/k", "b/x", "b/z", "<", "b.txt", "c", "l"]);
        assert_eq!(seen(top.path(), 1), ["a", "b", "b.txt", "c", "l"]);
        assert!(seen(top.path(), 0).is_empty());
    }

    #[test]
    fn a_directory_with_more_names_than_may_be_held_is_seen_whole() {
        let top = tempfile::tempdir().unwrap();
        let name = |number: usize| format!("{number:06}{}", "x".repeat(240));
        let count = 500;
        for directory in ["", "000003-inner/"] {
            fs::create_dir_all(top.path().join(directory)).unwrap();
            for number in 0..count {
                fs::write(top.path().join(directory).join(name(number)), "").unwrap();
            }
        }
        let mut walk = Walk::new(top.path(), usize::MAX).unwrap();
        // Each of them takes about 300 bytes.
        walk.most = 300 * 50;
        let (mut seen, mut last) = (0, Vec::new());
        while let Some(step) = walk.next() {
            let Step::Entry(entry) = step else { continue };
            let path = entry.path();
            assert!(path > last);
            (seen, last) = (seen + 1, path);
            assert!(walk.held <= walk.most);
        }
        assert_eq!(seen, 2 * count + 1);
    }

    #[test]
    fn a_tree_deeper_than_any_path_ends_the_walk_and_not_the_daemon() {
        let top = tempfile::tempdir().unwrap();
        let mut at = openat(rustix::fs::CWD, top.path(), DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, c"dd", Mode::RWXU).unwrap();
            at = openat(&at, c"dd", DIRECTORY, Mode::empty()).unwrap();
        }
        let seen = seen(top.path(), usize::MAX);
        assert_eq!(seen.iter().filter(|path| *path == "<").count(), seen.len() / 2);
        assert!(seen.len() > 2000, "{}", seen.len());
        osb_sys::tree::remove(&top.path().join("dd")).unwrap();
    }
}
