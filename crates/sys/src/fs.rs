//! File operations whose errors name the path.
#![expect(clippy::disallowed_methods, reason = "this module is what the rest of the code calls")]

use std::{
    io,
    path::{Path, PathBuf},
};

/// An operation on a path that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}", path.display())]
pub struct PathError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl PathError {
    pub fn new(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self { doing, path: path.into(), source }
    }

    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    pub fn io(&self) -> &io::Error {
        &self.source
    }
}

fn named<T>(doing: &'static str, path: &Path, result: io::Result<T>) -> Result<T, PathError> {
    result.map_err(|source| PathError::new(doing, path, source))
}

pub fn read(path: impl AsRef<Path>) -> Result<Vec<u8>, PathError> {
    named("read", path.as_ref(), std::fs::read(path.as_ref()))
}

pub fn open(path: impl AsRef<Path>) -> Result<std::fs::File, PathError> {
    named("open", path.as_ref(), std::fs::File::open(path.as_ref()))
}

/// The content of an ordinary file of at most [`SMALL`] bytes, from a place where somebody hostile
/// may have put something else: a pipe that nobody writes to, or a device that never ends.
pub fn read_small(path: impl AsRef<Path>) -> Result<Vec<u8>, PathError> {
    let path = path.as_ref();
    named("read", path, read_small_file(path))
}

/// The most that [`read_small`] reads.
pub const SMALL: u64 = 1 << 20;

fn read_small_file(path: &Path) -> io::Result<Vec<u8>> {
    use std::{io::Read, os::unix::fs::OpenOptionsExt};
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > SMALL {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not an ordinary, small file"));
    }
    let mut content = Vec::new();
    file.take(SMALL).read_to_end(&mut content)?;
    Ok(content)
}

pub fn read_to_string(path: impl AsRef<Path>) -> Result<String, PathError> {
    named("read", path.as_ref(), std::fs::read_to_string(path.as_ref()))
}

pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<(), PathError> {
    named("write", path.as_ref(), std::fs::write(path.as_ref(), content))
}

/// Makes the directory and its parents; one that exists is success.
pub fn create_dir_all(path: impl AsRef<Path>) -> Result<(), PathError> {
    named("create directory", path.as_ref(), std::fs::create_dir_all(path.as_ref()))
}

/// As [`create_dir_all`]; what it makes is for the owner alone.
pub fn create_private_dir_all(path: impl AsRef<Path>) -> Result<(), PathError> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(path.as_ref());
    named("create directory", path.as_ref(), made)
}

/// Says that what lies in one directory below `path` has nothing to do with what lies in another.
///
/// A file system that takes the hint (ext4) spreads them over the disk. Without it all share a part
/// of it, and ext4 passes over every file that was deleted there within the last seconds before it
/// makes one: where many come and go, that takes milliseconds.
pub fn spread(path: impl AsRef<Path>) {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(path.as_ref(), flags, rustix::fs::Mode::empty()) else {
        return;
    };
    if let Ok(flags) = rustix::fs::ioctl_getflags(&directory) {
        // The others do not know it, and need no hint.
        rustix::fs::ioctl_setflags(&directory, flags | rustix::fs::IFlags::TOPDIR).ok();
    }
}

/// Removes a file. Absence is success.
pub fn remove_file(path: impl AsRef<Path>) -> Result<(), PathError> {
    match std::fs::remove_file(path.as_ref()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => named("remove", path.as_ref(), result),
    }
}

/// How many entries a directory has.
pub fn count_entries(path: impl AsRef<Path>) -> Result<usize, PathError> {
    named("list", path.as_ref(), std::fs::read_dir(path.as_ref())).map(Iterator::count)
}

/// The names in a directory, those that are not UTF-8 left out. An absent directory is empty.
pub fn names(path: impl AsRef<Path>) -> Result<Vec<String>, PathError> {
    let path = path.as_ref();
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => named("list", path, result)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = named("list", path, entry)?.file_name().into_string() {
            names.push(name);
        }
    }
    Ok(names)
}

/// At most so many of the names in a directory, as if there were no others; none if it cannot be read.
pub fn some_names(path: impl AsRef<Path>, most: usize) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().take(most);
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Makes one directory with this mode; it must not exist.
pub fn create_dir(path: impl AsRef<Path>, mode: u32) -> Result<(), PathError> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    named("create directory", path.as_ref(), builder.mode(mode).create(path.as_ref()))
}

/// Gives a file to another owner, without following a link.
pub fn chown(path: impl AsRef<Path>, uid: u32, gid: u32) -> Result<(), PathError> {
    let path = path.as_ref();
    named("change owner of", path, std::os::unix::fs::lchown(path, Some(uid), Some(gid)))
}

pub fn set_mode(path: impl AsRef<Path>, mode: u32) -> Result<(), PathError> {
    use std::os::unix::fs::PermissionsExt;
    let path = path.as_ref();
    named("change mode of", path, std::fs::set_permissions(path, PermissionsExt::from_mode(mode)))
}

/// Writes a file so that it is either absent or whole, even if this process is killed half-way. It
/// does not wait for the disk, so a machine that loses power may lose the content.
pub fn write_whole(path: impl AsRef<Path>, content: &[u8], mode: u32) -> Result<(), PathError> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    let path = path.as_ref();
    let partial = path.with_extension("partial");
    let mut options = std::fs::OpenOptions::new();
    // Not truncated if it is empty: ext4 takes that for an old file that gets new content, and
    // begins to write it to the disk before it is closed.
    let file = options.write(true).create(true).truncate(false).mode(mode).open(&partial);
    let written = file.and_then(|mut file| {
        if file.metadata()?.len() > 0 {
            file.set_len(0)?;
        }
        file.write_all(content)
    });
    named("write", &partial, written)?;
    named("write", path, std::fs::rename(partial, path))
}

/// Makes a file that must not exist, and opens it to be written.
pub fn create(path: impl AsRef<Path>, mode: u32) -> Result<std::fs::File, PathError> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = path.as_ref();
    let mut options = std::fs::OpenOptions::new();
    named("create", path, options.write(true).create_new(true).mode(mode).open(path))
}

/// Opens a file to be read and written from its beginning, and makes it if it is not there.
pub fn read_and_write(path: impl AsRef<Path>, mode: u32) -> Result<std::fs::File, PathError> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = path.as_ref();
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(mode);
    named("open", path, options.open(path))
}

/// Waits until everything that was written to the file system of `path` is on its disk.
pub fn sync_all_around(path: impl AsRef<Path>) -> Result<(), PathError> {
    let path = path.as_ref();
    let synced = std::fs::File::open(path).and_then(|file| Ok(rustix::fs::syncfs(file)?));
    named("write to the disk what is around", path, synced)
}

/// Opens a file to be written at its end, and makes it if it is not there.
pub fn append(path: impl AsRef<Path>, mode: u32) -> Result<std::fs::File, PathError> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = path.as_ref();
    let mut options = std::fs::OpenOptions::new();
    named("open", path, options.append(true).create(true).mode(mode).open(path))
}

/// When a file was changed last, and its length; `None` if it is not there.
pub fn changed(path: impl AsRef<Path>) -> Result<Option<(std::time::SystemTime, u64)>, PathError> {
    let looked = std::fs::symlink_metadata(path.as_ref());
    match looked.and_then(|metadata| Ok((metadata.modified()?, metadata.len()))) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PathError::new("look at", path.as_ref(), error)),
    }
}

/// Removes a directory if there is nothing in it.
pub fn remove_empty_dir(path: impl AsRef<Path>) -> Result<(), PathError> {
    match std::fs::remove_dir(path.as_ref()) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => named("remove", path.as_ref(), removed),
    }
}

pub fn symlink(content: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<(), PathError> {
    named("link", path.as_ref(), std::os::unix::fs::symlink(content, path.as_ref()))
}

pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), PathError> {
    named("move", from.as_ref(), std::fs::rename(from.as_ref(), to))
}

/// Moves something out of the way. Answers with where it is now, if it was there.
pub fn put_aside(from: impl AsRef<Path>, to: PathBuf) -> Result<Option<PathBuf>, PathError> {
    match rename(from, &to) {
        Ok(()) => Ok(Some(to)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
