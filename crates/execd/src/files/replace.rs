use std::{
    fs::{File, Permissions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use osb_api::execd::Mode;
use osb_sys::fs::{self, PathError};
use uuid::Uuid;

/// A file that is written beside its target and takes its place once it is complete, so that
/// nobody ever sees half of it. Dropped before that, it leaves nothing behind.
#[derive(Debug)]
pub(super) struct Replacement {
    target: PathBuf,
    /// Where it is written; none once it has taken its place.
    temporary: Option<PathBuf>,
    file: File,
    /// What the file shall have, from the caller or from the file that it replaces.
    mode: Option<Mode>,
    owner: Owner,
}

/// Whose the file shall be; what is absent stays as the kernel made it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Owner {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

impl Replacement {
    /// Makes the directories on the way and an empty file beside the target.
    pub(super) fn create(path: &Path, mode: Option<Mode>, owner: Owner) -> Result<Self, PathError> {
        // What a link points to is replaced, not the link.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let replaced = target.metadata().ok();
        if replaced.as_ref().is_some_and(|metadata| !metadata.is_file()) {
            let error = io::Error::other("it is not a regular file");
            return Err(PathError::new("replace", target, error));
        }
        let directory = target.parent().unwrap_or_else(|| Path::new("/"));
        fs::create_dir_all(directory)?;
        let temporary = directory.join(format!(".upload-{}", Uuid::new_v4().simple()));
        let mode = mode.or_else(|| Some(Mode::from_bits(replaced.as_ref()?.mode())));
        // With a mode to come, nobody may look before it is set; else what the umask leaves.
        let initial = if mode.is_some() { 0o600 } else { 0o777 };
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(initial)
            .open(&temporary)
            .map_err(|source| PathError::new("create a file beside", &target, source))?;
        let replacement = Self { target, temporary: Some(temporary), file, mode, owner };
        if let Some(metadata) = replaced {
            // Keeping the owner is a courtesy that only root can extend.
            drop(fchown(&replacement.file, Some(metadata.uid()), Some(metadata.gid())));
        }
        Ok(replacement)
    }

    /// Where to write the content.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Lets the file take its place.
    pub(super) fn commit(mut self) -> Result<(), PathError> {
        let failed = |doing| {
            let target = self.target.clone();
            move |source| PathError::new(doing, target, source)
        };
        let Owner { uid, gid } = self.owner;
        if uid.is_some() || gid.is_some() {
            fchown(&self.file, uid, gid).map_err(failed("set the owner of"))?;
        }
        if let Some(mode) = self.mode {
            let permissions = Permissions::from_mode(mode.bits());
            self.file.set_permissions(permissions).map_err(failed("set the mode of"))?;
        }
        let Some(temporary) = &self.temporary else { return Ok(()) };
        match std::fs::rename(temporary, &self.target) {
            Ok(()) => {
                self.temporary = None;
                Ok(())
            }
            // The target is a mount point, as /etc/hosts often is: fill the file that is there.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => self.fill(temporary),
            Err(error) => Err(failed("replace")(error)),
        }
    }

    fn fill(&self, temporary: &Path) -> Result<(), PathError> {
        let copied = File::open(temporary).and_then(|mut content| {
            let mut target = File::options().write(true).truncate(true).open(&self.target)?;
            io::copy(&mut content, &mut target)
        });
        copied.map(drop).map_err(|source| PathError::new("write", &self.target, source))
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Without it there is nothing to do, and nobody to tell.
            drop(fs::remove_file(temporary));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn put(path: &Path, content: &[u8], mode: Option<u32>) -> Result<(), PathError> {
        let mode = mode.map(Mode::from_bits);
        let replacement = Replacement::create(path, mode, Owner::default())?;
        replacement.file().unwrap().write_all(content).unwrap();
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
    fn only_regular_files_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        assert!(put(directory.path(), b"x", None).is_err());
        assert!(put(Path::new("/dev/null"), b"x", None).is_err());
    }
}
