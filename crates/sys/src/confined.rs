//! Threads that can reach one directory and nothing else, whatever the files in it lead to.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    path::Path,
    thread,
};

use rustix::{
    fs::{Mode, OFlags},
    thread::set_no_new_privs,
};

/// The first version of Landlock that lets a directory move to another one; Linux 5.19 has it.
const OLDEST: u32 = 2;

/// Access to files, as bits of the kernel.
const EXECUTE: u64 = 1 << 0;
const READ_FILE: u64 = 1 << 2;
const READ_DIRECTORY: u64 = 1 << 3;
const MAKE_BLOCK_DEVICE: u64 = 1 << 11;
const DEVICE_IOCTL: u64 = 1 << 15;

/// What is refused below the directory too: no file that comes from a sandbox is a program or a
/// device to the server. A character device may be made, for that is how layers mark what is gone.
const REFUSED_WITHIN: u64 = EXECUTE | MAKE_BLOCK_DEVICE | DEVICE_IOCTL;

const READ: u64 = READ_FILE | READ_DIRECTORY;

/// The version of Landlock that the kernel has, if it is one that confines.
pub fn version() -> Option<u32> {
    const VERSION: u32 = 1;
    let nothing = std::ptr::null::<Ruleset>();
    // SAFETY: with this flag the kernel follows no pointer, and answers with a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION) };
    u32::try_from(version).ok().filter(|version| *version >= OLDEST)
}

/// Runs `work` on a thread of its own that can open, make, move and remove files below `directory`
/// only, can mount nothing and reaches no network. Descriptors that are open already go on working.
///
/// Where the kernel has no Landlock, `work` runs without such bounds; where it has and the thread
/// cannot be bound, `work` is not run.
pub fn run<T: Send>(directory: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    run_within(&[directory.as_fd()], work)
}

/// As [`run`], below several directories.
pub fn run_within<T: Send>(
    directories: &[BorrowedFd<'_>],
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    run_reading(directories, &[], work)
}

/// As [`run_within`]; below the directories `read` files can be read too, and nothing else.
pub fn run_reading<T: Send>(
    directories: &[BorrowedFd<'_>],
    read: &[BorrowedFd<'_>],
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let bounds = version().map(|version| bounds(version, directories, read)).transpose()?;
    thread::scope(|scope| {
        let confined =
            thread::Builder::new().name("confined".to_owned()).spawn_scoped(scope, move || {
                if let Some(bounds) = bounds {
                    restrict_thread(&bounds)?;
                }
                Ok(work())
            })?;
        confined.join().map_err(|_| io::Error::other("the confined thread panicked"))?
    })
}

/// `struct landlock_ruleset_attr`: what is refused unless a rule allows it.
#[repr(C)]
struct Ruleset {
    files: u64,
    network: u64,
    scopes: u64,
}

/// `struct landlock_path_beneath_attr`: what is allowed below a directory.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    directory: libc::c_int,
}

fn bounds(
    version: u32,
    directories: &[BorrowedFd<'_>],
    read: &[BorrowedFd<'_>],
) -> io::Result<OwnedFd> {
    const PATH_BENEATH: libc::c_int = 1;
    let from = |first: u32, bits: u64| if version >= first { bits } else { 0 };
    // What one version does not know, it does not take.
    let files = 0x3fff | from(3, 1 << 14) | from(5, DEVICE_IOCTL);
    let ruleset = Ruleset { files, network: from(4, 0b11), scopes: from(6, 0b11) };
    // SAFETY: the kernel reads the structure during the call; its size says how long it is, and an
    // older kernel takes a longer one whose end is zero.
    let created = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const ruleset,
            size_of::<Ruleset>(),
            0_u32,
        )
    };
    let created = i32::try_from(done(created)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor, and nobody else knows its number.
    let bounds = unsafe { OwnedFd::from_raw_fd(created) };
    let changed = directories.iter().map(|directory| (directory, files & !REFUSED_WITHIN));
    for (directory, allowed) in changed.chain(read.iter().map(|directory| (directory, READ))) {
        let beneath = Beneath { allowed, directory: directory.as_raw_fd() };
        // SAFETY: the structure is of the kind that the number before it says, and the kernel only
        // reads it during the call.
        let added = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                bounds.as_raw_fd(),
                PATH_BENEATH,
                &raw const beneath,
                0_u32,
            )
        };
        done(added)?;
    }
    Ok(bounds)
}

fn restrict_thread(bounds: &OwnedFd) -> io::Result<()> {
    // Of this thread alone; without it only a privileged thread may give up rights.
    set_no_new_privs(true)?;
    // SAFETY: takes a descriptor and a number, and touches no memory.
    let bound =
        unsafe { libc::syscall(libc::SYS_landlock_restrict_self, bounds.as_raw_fd(), 0_u32) };
    done(bound).map(drop)
}

fn done(result: libc::c_long) -> io::Result<libc::c_long> {
    if result >= 0 { Ok(result) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_thread_reaches_its_directory_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let (own, other) = (root.path().join("own"), root.path().join("other"));
        crate::fs::create_dir_all(own.join("a/b")).unwrap();
        crate::fs::create_dir_all(&other).unwrap();
        crate::fs::write(other.join("kept"), "x").unwrap();
        crate::fs::symlink(&other, own.join("link")).unwrap();
        let outside = run(&own, || {
            crate::fs::write(own.join("new"), "x").unwrap();
            crate::fs::rename(own.join("a/b"), own.join("b")).unwrap();
            let refused = [
                crate::fs::read(other.join("kept")).is_err(),
                crate::fs::read(own.join("link/kept")).is_err(),
                crate::fs::write(other.join("new"), "x").is_err(),
                crate::fs::rename(own.join("new"), other.join("new")).is_err(),
                crate::tree::remove(&other).is_err(),
                std::net::TcpStream::connect(("127.0.0.1", 9)).is_err_and(|error| {
                    version() < Some(4) || error.kind() == io::ErrorKind::PermissionDenied
                }),
            ];
            crate::tree::remove(&own.join("b")).unwrap();
            refused
        });
        if version().is_some() {
            assert_eq!(outside.unwrap(), [true; 6]);
        }
        // The bounds were those of the thread.
        assert_eq!(crate::fs::read(other.join("kept")).unwrap(), b"x");
    }

    #[test]
    fn without_the_directory_nothing_runs() {
        let ran = run(Path::new("/nonexistent/osb"), || ());
        assert!(ran.is_err() || version().is_none());
    }
}
