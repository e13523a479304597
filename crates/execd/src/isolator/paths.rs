//! Paths that execd names, found without being led astray.

use std::{
    os::fd::OwnedFd,
    path::{Component, Path},
};

use osb_sys::step::{Failure, Step};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, chownat, fstat, fstatfs, mkdirat,
        openat, openat2,
    },
    io::Errno,
    process::{Gid, Uid},
};

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File,
}

/// File systems in which the kernel shows itself. Their files tell and do more than the sandbox's own,
/// and a link in a place that somebody else can write to may lead there.
const KERNEL: [u64; 12] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x1cd1,      // devpts
    0x1980_0202, // mqueue
    0x6e73_6673, // nsfs
    0x27_e0eb,   // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xcafe_4a11, // bpf
    0x4249_4e4d, // binfmt_misc
];

/// Opens what the path names, in this process's root, links followed and never the kernel's own
/// ones, which could lead out of it. It must be a directory or an ordinary file of the sandbox.
pub(super) fn open(path: &Path) -> Result<(OwnedFd, Kind), Failure> {
    let opened = resolve(path).step(&format!("find {}", path.display()))?;
    let stat = fstat(&opened).step("look at a path")?;
    let root = rustix::fs::stat("/").step("look at the root")?;
    let stage = rustix::fs::stat(super::view::STAGE).step("look at the stage")?;
    let of = fstatfs(&opened).step("look at a file system")?.f_type.cast_unsigned();
    let is_root = (stat.st_dev, stat.st_ino) == (root.st_dev, root.st_ino);
    if is_root || stat.st_dev == stage.st_dev || KERNEL.contains(&of) {
        let wrong = std::io::Error::other("it leads to what every session has in its own way");
        return Err(wrong).step(&format!("show {}", path.display()));
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok((opened, Kind::Directory)),
        FileType::RegularFile => Ok((opened, Kind::File)),
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => {
            let wrong = std::io::Error::other("it is neither a directory nor an ordinary file");
            Err(wrong).step(&format!("show {}", path.display()))
        }
    }
}

fn resolve(path: &Path) -> rustix::io::Result<OwnedFd> {
    let root =
        openat(CWD, c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // The kernel gives up with AGAIN when something was renamed meanwhile.
    for _ in 0..8 {
        match openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside) {
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// A file system that the session has for itself and that is empty in the beginning.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) at: &'static str,
    pub(super) mount: OwnedFd,
}

/// As [`open`], for a place to attach a mount to. Within `own` the place is made.
pub(super) fn open_or_make(
    path: &Path,
    kind: Kind,
    own: &[Own],
    owner: u32,
) -> Result<OwnedFd, Failure> {
    let found = resolve(path);
    let own = own.iter().find(|own| path.starts_with(own.at));
    let (Err(Errno::NOENT), Some(own)) = (&found, own) else {
        return found.step(&format!("find {}", path.display()));
    };
    let what = format!("make {}", path.display());
    let mut at = own.mount.try_clone().step(&what)?;
    let mut names = path.strip_prefix(own.at).unwrap_or(path).components().peekable();
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else { continue };
        if names.peek().is_none() && kind == Kind::File {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            drop(openat(&at, name, flags, Mode::from_raw_mode(0o644)).step(&what)?);
        } else {
            match mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error).step(&what),
            }
        }
        let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
        chownat(&at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).step(&what)?;
        at = openat(&at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .step(&what)?;
    }
    Ok(at)
}
