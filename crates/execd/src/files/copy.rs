//! Copies of files and directories as they are, for moves between file systems.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
};

use osb_sys::fs::PathError;
use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, Statx, Timespec, Timestamps, Uid, chmodat,
        chownat, fchmod, fstat, ftruncate, futimens, makedev, mkdirat, mknodat, openat, readlinkat,
        seek, symlinkat, utimensat,
    },
    io::Errno,
};

use super::walk::{self, Step, Walk};

const BUFFER: usize = 256 << 10;

const OURS: Mode = Mode::RUSR.union(Mode::WUSR);

/// Copies a file, a link or a directory with all that is in it to a name that is free, with modes,
/// owners where that is allowed, and times. What it cannot read ends it: a copy for a move must
/// lack nothing.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), PathError> {
    let failed = |error: io::Error| PathError::new("copy", from, error);
    let status = walk::status(CWD, from).map_err(|error| failed(error.into()))?;
    if walk::kind(&status) == FileType::Directory {
        directory(from, to, &status).map_err(failed)
    } else {
        let name = from.as_os_str().as_bytes();
        one(CWD, name, &status, CWD, to.as_os_str().as_bytes()).map_err(failed)
    }
}

fn directory(from: &Path, to: &Path, status: &Statx) -> io::Result<()> {
    mkdirat(CWD, to, Mode::RWXU)?;
    let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = openat(CWD, to, open, Mode::empty())?;
    // A directory gets its mode and its times last: they change as it is filled.
    let mut entered: Vec<(Vec<u8>, Statx)> = Vec::new();
    let finish = |path: &[u8], status: &Statx| -> io::Result<()> {
        let made = openat(&top, if path.is_empty() { b"." } else { path }, open, Mode::empty())?;
        Ok(dress(&made, status)?)
    };
    let mut walk = Walk::new(from, usize::MAX)?;
    while let Some(step) = walk.next() {
        match step {
            Step::Left => {
                if let Some((path, status)) = entered.pop() {
                    finish(&path, &status)?;
                }
            }
            Step::Entry(entry) if entry.kind() == FileType::Directory => {
                let path = entry.path();
                mkdirat(&top, path.as_slice(), Mode::RWXU)?;
                entered.push((path, *entry.status));
            }
            Step::Entry(entry) => {
                let name = entry.name.to_bytes();
                one(entry.directory, name, entry.status, top.as_fd(), &entry.path())?;
            }
        }
    }
    if walk.missed() {
        return Err(io::Error::other("some of it could not be read"));
    }
    finish(b"", status)
}

/// Copies what is not a directory.
fn one(
    from: BorrowedFd<'_>,
    name: &[u8],
    status: &Statx,
    to: BorrowedFd<'_>,
    path: &[u8],
) -> io::Result<()> {
    let kind = walk::kind(status);
    if kind.is_file() {
        return content(from, name, to, path, status);
    }
    if kind.is_symlink() {
        let target = readlinkat(from, name, Vec::new())?;
        symlinkat(target, to, path)?;
        return bare(to, path, status);
    }
    mknodat(to, path, kind, OURS, makedev(status.stx_rdev_major, status.stx_rdev_minor))?;
    bare(to, path, status)?;
    Ok(chmodat(to, path, mode(status), AtFlags::empty())?)
}

/// The owner and the times of what cannot be opened.
fn bare(to: BorrowedFd<'_>, path: &[u8], status: &Statx) -> io::Result<()> {
    let (uid, gid) = owner(status);
    allowed(chownat(to, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
    Ok(utimensat(to, path, &times(status), AtFlags::SYMLINK_NOFOLLOW)?)
}

fn content(
    from: BorrowedFd<'_>,
    name: &[u8],
    to: BorrowedFd<'_>,
    path: &[u8],
    status: &Statx,
) -> io::Result<()> {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let source = openat(from, name, read, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&source)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it became something else"));
    }
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let target = openat(to, path, write, OURS)?;
    let (mut source, mut target) = (File::from(source), File::from(target));
    spread(&mut source, &mut target)?;
    Ok(dress(&OwnedFd::from(target), status)?)
}

/// Copies the content, and leaves holes where there are holes.
fn spread(source: &mut File, target: &mut File) -> io::Result<()> {
    let size = source.metadata()?.len();
    let (mut at, mut buffer) = (0, vec![0; BUFFER]);
    while at < size {
        let data = match seek(&*source, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            // A file system that knows no holes.
            Err(_) => at,
        };
        let hole = seek(&*source, rustix::fs::SeekFrom::Hole(data)).unwrap_or(size);
        source.seek(SeekFrom::Start(data))?;
        target.seek(SeekFrom::Start(data))?;
        let mut left = hole.max(data + 1) - data;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(BUFFER).min(BUFFER);
            let wanted = buffer.get_mut(..most).unwrap_or_default();
            let read = source.read(wanted)?;
            if read == 0 {
                break;
            }
            target.write_all(wanted.get(..read).unwrap_or_default())?;
            left -= read as u64;
        }
        at = hole.max(data + 1);
    }
    Ok(ftruncate(&*target, size)?)
}

/// Gives a copy the owner, the mode and the times of the original.
fn dress(file: &OwnedFd, status: &Statx) -> Result<(), Errno> {
    let (uid, gid) = owner(status);
    let kept = allowed(chownat(file, c"", uid, gid, AtFlags::EMPTY_PATH))?;
    // What runs with the rights of its owner must not run with those of another.
    let mode = mode(status);
    fchmod(file, if kept { mode } else { mode - Mode::SUID - Mode::SGID })?;
    futimens(file, &times(status))
}

/// Only root can give files away, so that is no reason to fail.
fn allowed(result: Result<(), Errno>) -> Result<bool, Errno> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::PERM) => Ok(false),
        Err(error) => Err(error),
    }
}

fn owner(status: &Statx) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(status.stx_uid)), Some(Gid::from_raw(status.stx_gid)))
}

fn mode(status: &Statx) -> Mode {
    Mode::from_raw_mode(u32::from(status.stx_mode) & 0o7777)
}

fn times(status: &Statx) -> Timestamps {
    let time = |time: rustix::fs::StatxTimestamp| Timespec {
        tv_sec: time.tv_sec,
        tv_nsec: i64::from(time.tv_nsec),
    };
    Timestamps { last_access: time(status.stx_atime), last_modification: time(status.stx_mtime) }
}
