use std::{
    fs::File,
    io::{self, Seek},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use osb_api::execd::Mode;
use osb_sys::fs::{self, PathError};
use rustix::{
    fs::{AtFlags, CWD, Gid, OFlags, Uid, fchmod, openat, renameat, unlinkat},
    io::Errno,
};
use uuid::Uuid;

use super::ownership::Owner;

/// As many links as the kernel follows in a path.
const LINKS: usize = 40;

/// A file that is written beside its target and takes its place once it is complete, so that
/// nobody ever sees half of it. Dropped before that, it leaves nothing behind.
///
/// It is made and committed with the rights of the caller; it may be written with any.
#[derive(Debug)]
pub(super) struct Replacement {
    target: PathBuf,
    file: Arc<File>,
    temporary: Temporary,
    /// With one, the content goes into this file in the end, as nothing else would keep its owner
    /// or as its directory takes no new files.
    existing: Option<File>,
    /// What the file shall have, from the caller or from the file that it replaces.
    mode: Option<Mode>,
    owner: Owner,
}

/// The name under which it is written; none once it has taken its place.
#[derive(Debug)]
struct Temporary {
    directory: OwnedFd,
    name: Option<String>,
}

impl Replacement {
    /// Makes the directories on the way and an empty file beside the target.
    pub(super) fn create(path: &Path, mode: Option<Mode>, owner: Owner) -> Result<Self, PathError> {
        // What a link points to is replaced, not the link.
        let target = end_of_links(path);
        let replaced =
            Existing::find(&target).map_err(|source| PathError::new("write", &target, source))?;
        let parent = target.parent().unwrap_or_else(|| Path::new("/"));
        fs::create_dir_all(parent)?;
        let mode = mode.or_else(|| Some(Mode::from_bits(replaced.as_ref()?.mode)));
        // With a mode to come, nobody may look before it is set; else what the umask leaves.
        let initial = if mode.is_some() { 0o600 } else { 0o777 };
        let failed = |error: Errno| PathError::new("write", &target, error.into());
        let (file, temporary, existing) = match (stage(parent, initial), replaced) {
            (Ok((file, temporary)), None) => (file, temporary, None),
            (Ok((file, temporary)), Some(replaced)) => {
                let keeps_owner = replaced.owner.give(&file).is_ok();
                let existing = if keeps_owner { None } else { Some(replaced.open(&target)?) };
                (file, temporary, existing)
            }
            (Err(Errno::ACCESS | Errno::PERM | Errno::ROFS), Some(replaced)) => {
                let (file, temporary) = stage(Path::new("/tmp"), 0o600).map_err(failed)?;
                (file, temporary, Some(replaced.open(&target)?))
            }
            (Err(error), _) => return Err(failed(error)),
        };
        Ok(Self { target, file: Arc::new(file), temporary, existing, mode, owner })
    }

    /// Where to write the content.
    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Lets the file take its place.
    pub(super) fn commit(mut self) -> Result<(), PathError> {
        if let Some(existing) = &self.existing {
            self.fill(existing)?;
            return self.dress(existing);
        }
        self.dress(&self.file)?;
        let Temporary { directory, name: Some(name) } = &self.temporary else { return Ok(()) };
        let own_name = self.target.file_name().unwrap_or_default();
        match renameat(directory, name.as_str(), directory, own_name) {
            Ok(()) => {
                self.temporary.name = None;
                Ok(())
            }
            // The target is a mount point, as /etc/hosts often is: fill the file that is there.
            Err(Errno::BUSY) => {
                let existing = write_only(&self.target);
                self.fill(&existing.map_err(|source| self.failed("write", source))?)
            }
            Err(error) => Err(self.failed("write", error.into())),
        }
    }

    fn dress(&self, file: &File) -> Result<(), PathError> {
        let set = self.owner.give(file);
        set.map_err(|error| self.failed("set the owner of", error.into()))?;
        let now = file.metadata().map(|now| Mode::from_bits(now.mode())).ok();
        // A file that was only filled has its mode, and perhaps another owner.
        let Some(mode) = self.mode.filter(|&mode| Some(mode) != now) else { return Ok(()) };
        fchmod(file, rustix::fs::Mode::from_raw_mode(mode.bits()))
            .map_err(|error| self.failed("set the mode of", error.into()))
    }

    fn fill(&self, mut existing: &File) -> Result<(), PathError> {
        let mut content = &*self.file;
        let filled = content
            .rewind()
            .and_then(|()| existing.set_len(0))
            .and_then(|()| io::copy(&mut content, &mut existing));
        filled.map(drop).map_err(|source| self.failed("write", source))
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> PathError {
        PathError::new(doing, &self.target, source)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Without it there is nothing to do, and nobody to tell.
            unlinkat(&self.directory, name.as_str(), AtFlags::empty()).ok();
        }
    }
}

/// The file that is replaced.
struct Existing {
    mode: u32,
    owner: Owner,
    /// Absent for a program that runs, which can be replaced but not written.
    writable: Option<File>,
}

impl Existing {
    /// Finds it, if it is there. The caller must have the right to write it.
    fn find(target: &Path) -> io::Result<Option<Self>> {
        let metadata = match target.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let writable = match write_only(target) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => None,
            Err(error) => return Err(error),
        };
        let owner = Owner {
            uid: Some(Uid::from_raw(metadata.uid())),
            gid: Some(Gid::from_raw(metadata.gid())),
        };
        Ok(Some(Self { mode: metadata.mode(), owner, writable }))
    }

    /// The file, to be written.
    fn open(self, target: &Path) -> Result<File, PathError> {
        let busy = || io::Error::from(io::ErrorKind::ExecutableFileBusy);
        self.writable.ok_or_else(|| PathError::new("write", target, busy()))
    }
}

fn write_only(path: &Path) -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    File::options().write(true).custom_flags(nonblocking).open(path)
}

/// Makes a file with a name of its own in a directory.
fn stage(directory: &Path, mode: u32) -> Result<(File, Temporary), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, directory, flags, rustix::fs::Mode::empty())?;
    let name = format!(".upload-{}", Uuid::new_v4().simple());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(&directory, name.as_str(), flags, rustix::fs::Mode::from_raw_mode(mode))?;
    Ok((File::from(file), Temporary { directory, name: Some(name) }))
}

/// The path that writing to `path` writes to, also when the last of its links points nowhere yet.
fn end_of_links(path: &Path) -> PathBuf {
    let mut end = path.to_owned();
    for _ in 0..LINKS {
        if let Ok(real) = end.canonicalize() {
            return real;
        }
        let Ok(points_to) = end.read_link() else { break };
        end = end.parent().unwrap_or_else(|| Path::new("/")).join(points_to);
    }
    end
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn put(path: &Path, content: &[u8], mode: Option<u32>) -> Result<(), PathError> {
        let mode = mode.map(Mode::from_bits);
        let replacement = Replacement::create(path, mode, Owner::default())?;
        (&*replacement.file()).write_all(content).unwrap();
        replacement.commit()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = directory.read_dir().unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_that_is_not_committed_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, b"old").unwrap();
        drop(Replacement::create(&path, None, Owner::default()).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["a"]);
    }

    #[test]
    fn the_mode_of_a_replaced_file_stays_unless_given() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/er/a");
        let mode = || Mode::from_bits(path.metadata().unwrap().mode());
        put(&path, b"one", Some(0o640)).unwrap();
        assert_eq!(mode(), Mode::from_bits(0o640));
        put(&path, b"two", None).unwrap();
        assert_eq!(
            (fs::read(&path).unwrap().as_slice(), mode()),
            (&b"two"[..], Mode::from_bits(0o640))
        );
        put(&path, b"", Some(0o4755)).unwrap();
        assert_eq!(mode(), Mode::from_bits(0o4755));
    }

    #[test]
    fn a_link_stays_and_what_it_points_to_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("a"), directory.path().join("link"));
        fs::write(&path, b"old").unwrap();
        std::os::unix::fs::symlink("a", &link).unwrap();
        put(&link, b"new", None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(link.symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn a_link_to_what_is_not_there_yet_leads_to_the_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("first"), directory.path().join("second"));
        std::os::unix::fs::symlink("second", &first).unwrap();
        std::os::unix::fs::symlink("deep/file", &second).unwrap();
        put(&first, b"new", None).unwrap();
        assert_eq!(fs::read(directory.path().join("deep/file")).unwrap(), b"new");
        assert!(first.symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        assert!(put(directory.path(), b"x", None).is_err());
        assert!(put(Path::new("/dev/null"), b"x", None).is_err());
    }
}
