//! Finding the first process of a sandbox again without a control group that holds it.
//!
//! The file `alive` is made empty before there is a process. The process writes into it which one it
//! is before it does anything else, and goes on only if the file still has its name. Whoever clears
//! the sandbox away takes the name first and then looks what was written: so either the process ends
//! by itself, or it is found.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
};

use osb_sys::{
    fs::{self, PathError},
    process::Trace,
};
use rustix::fs::{Mode, OFlags, fstat, openat};

use super::Place;

/// In `sandboxes/<id>`.
const NAME: &str = "alive";

impl Place {
    /// Makes the file for the process that is to come.
    pub(super) fn expect_process(&self) -> Result<(), PathError> {
        fs::write_whole(self.directory.join(NAME), b"", 0o600)
    }

    /// The first process, if it has written down which one it is, and lives.
    pub(crate) fn noted_process(&self) -> Option<OwnedFd> {
        trace(&self.directory)?.find()
    }

    /// The same, and no other process becomes the first one from here on.
    pub(crate) fn disown(&self) -> Result<Option<OwnedFd>, PathError> {
        let path = self.directory.join(NAME);
        let mut file = match fs::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        fs::remove_file(&path)?;
        Ok(read(&mut file).and_then(|trace| trace.find()))
    }
}

/// What is written down in the directory of a sandbox.
pub(crate) fn trace(directory: &Path) -> Option<Trace> {
    read(&mut fs::open(directory.join(NAME)).ok()?)
}

fn read(file: &mut File) -> Option<Trace> {
    let mut text = String::new();
    file.take(64).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Writes down that this process is the first one of the sandbox with this directory.
pub(crate) fn note(directory: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, NAME, flags, Mode::empty())?);
    writeln!(file, "{}", Trace::of_self()?)?;
    if fstat(&file)?.st_nlink == 0 {
        return Err(io::Error::other("the sandbox is being cleared away"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use osb_sys::cgroup::Layout;

    use super::*;

    #[test]
    fn a_process_comes_to_be_only_where_it_would_be_found() {
        let root = tempfile::tempdir().unwrap();
        let id = osb_api::SandboxId::random();
        let place = Place::new(root.path(), id, Layout::None.group("", ""));
        fs::create_dir(&place.directory, 0o700).unwrap();
        let directory = fs::open(&place.directory).unwrap();
        assert!(note(directory.as_fd()).is_err(), "nobody expects it");
        place.expect_process().unwrap();
        assert!(trace(&place.directory).is_none());
        note(directory.as_fd()).unwrap();
        assert_eq!(trace(&place.directory).unwrap().pid(), rustix::process::getpid());
        assert!(place.disown().unwrap().is_none(), "a test is no first process");
        assert!(note(directory.as_fd()).is_err(), "it was cleared away");
        assert!(place.disown().unwrap().is_none());
    }
}
