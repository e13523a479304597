use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use osb_sys::fs;
use rustix::{
    fs::{MemfdFlags, Mode, OFlags, memfd_create, open},
    process::{Resource, getrlimit},
};
use uuid::Uuid;

/// A file that nobody else can open, on disk if there is a directory for it, else in memory.
pub(super) fn unnamed_file() -> io::Result<File> {
    let directories = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    directories.iter().find_map(|directory| on_disk(directory).ok()).map_or_else(in_memory, Ok)
}

/// How large a file of this process may become. The kernel ends whoever writes beyond.
pub(super) fn largest_file() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX).max(1)
}

fn on_disk(directory: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
    let mode = Mode::RUSR | Mode::WUSR;
    // With EXCL even root cannot give such a file a name.
    if let Ok(file) = open(directory, flags | OFlags::TMPFILE, mode) {
        return Ok(file.into());
    }
    // Not every file system knows files that never had a name.
    let path = directory.join(format!(".execd-{}", Uuid::new_v4().simple()));
    let file = open(&path, flags | OFlags::CREATE | OFlags::NOFOLLOW, mode)?;
    fs::remove_file(&path).map_err(io::Error::other)?;
    Ok(file.into())
}

fn in_memory() -> io::Result<File> {
    Ok(memfd_create("output", MemfdFlags::CLOEXEC)?.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn the_file_has_no_name_and_is_for_nobody_else() {
        let directory = tempfile::tempdir().unwrap();
        for file in [on_disk(directory.path()).unwrap(), unnamed_file().unwrap()] {
            let metadata = file.metadata().unwrap();
            assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (0, 0o600));
        }
        assert!(fs::names(directory.path()).unwrap().is_empty());
    }

    #[test]
    fn without_a_directory_it_lies_in_memory() {
        assert!(on_disk(Path::new("/no/such/directory")).is_err());
        let file = in_memory().unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3);
    }
}
