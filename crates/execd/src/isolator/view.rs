//! What a session sees of the sandbox: everything, read-only, but for the places that it asked for.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use osb_sys::{
    fs,
    mount::{self, Attributes, FsOption},
    rootless::Rights,
    step::{Failure, Step},
};
use rustix::{
    fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat, fstat, fstatfs, mkdirat, openat},
    io::Errno,
    mount::{UnmountFlags, unmount},
    process::chdir,
};

use super::{
    devices,
    paths::{self, Kind, Own},
    protocol::{self, Open, Place, Tmp},
};

/// Flags of a mount that holds neither programs nor devices.
pub(super) const DATA: Attributes = Attributes::MOUNT_ATTR_NOSUID
    .union(Attributes::MOUNT_ATTR_NODEV)
    .union(Attributes::MOUNT_ATTR_NOEXEC);
/// Flags of every mount with files of the sandbox.
const FILES: Attributes = Attributes::MOUNT_ATTR_NOSUID.union(Attributes::MOUNT_ATTR_NODEV);

/// Where the file systems of layers are mounted while a view is built.
pub(super) const STAGE: &str = "/dev";

/// How much a session may keep in each file system of its own. All of it counts as memory of the
/// sandbox too.
const ROOM: &str = "1g";
/// How many files, for they take memory even when they are empty.
const FILE_COUNT: &str = "262144";

/// Kinds of file systems that a layer may lie on. Others, such as `/proc`, look at who opens a file,
/// and through a layer that would be the isolator.
const STACKABLE: [u64; 6] = [
    0x794c_7630, // overlay
    0xef53,      // ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
    0x0102_1994, // tmpfs
];

/// Something that will be attached, taken from the sandbox before its mounts are restricted.
struct Taken<'a> {
    place: &'a Place,
    kind: Kind,
    mount: OwnedFd,
}

/// Builds the view in this process's mount namespace, a fresh copy of the isolator's.
///
/// `kept` are where the file systems for the layers that are kept are mounted, in the order of the
/// places.
pub(super) fn build(open: &Open, kept: &[PathBuf], owner: u32) -> Result<(), Failure> {
    let owner_text = owner.to_string();
    let mut kept = kept.iter();
    let mut taken = Vec::new();
    for place in &open.places {
        let (source, kind) = paths::open(&place.source)?;
        let mount = match place.mode {
            protocol::Mode::Writable => shown(&source, FILES)?,
            protocol::Mode::ReadOnly => shown(&source, FILES | Attributes::MOUNT_ATTR_RDONLY)?,
            protocol::Mode::Layer => {
                let room = stage(&owner_text)?;
                layer(&source, kind, &room)?
            }
            protocol::Mode::KeptLayer => {
                let room = kept.next().ok_or(Errno::BADF).step("take the kept layer")?;
                layer(&source, kind, room)?
            }
        };
        taken.push(Taken { place, kind, mount });
    }
    let tmp = match open.tmp {
        Tmp::Private => None,
        Tmp::Shared => {
            paths::open(Path::new("/tmp")).ok().map(|(tmp, _)| shown(&tmp, FILES)).transpose()?
        }
    };
    // The layers have what they need of it.
    unmount(STAGE, UnmountFlags::DETACH).step("take the stage away")?;

    let covers = covers()?;
    let devices = devices::take()?;
    let root = openat(CWD, c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step("open the root")?;
    // What the session has of its own comes after this and is not restricted by it.
    mount::restrict_all(root, FILES | Attributes::MOUNT_ATTR_RDONLY)
        .step("make the sandbox's files read-only")?;
    devices::mount(devices, &owner_text)?;
    let proc = mount::filesystem("proc", &[], DATA).step("make /proc")?;
    mount::attach(proc, Path::new("/proc")).step("mount /proc")?;
    for (place, cover) in covers {
        mount::attach(cover, &place).step("cover a part of /proc")?;
    }
    let mut own = Vec::new();
    for (at, mode) in [("/tmp", "1777"), ("/run", "755")] {
        let Ok((place, Kind::Directory)) = paths::open(Path::new(at)) else { continue };
        if at == "/tmp"
            && let Some(tmp) = &tmp
        {
            mount::attach_at(tmp, place).step("mount /tmp")?;
            continue;
        }
        let mount = own_files(&owner_text, mode)?;
        mount::attach_at(&mount, place).step("mount a directory of its own")?;
        own.push(Own { at, mount });
    }
    for Taken { place, kind, mount } in taken {
        let target = paths::open_or_make(&place.target, kind, &own, owner)?;
        mount::attach_at(mount, target).step(&format!("mount {}", place.target.display()))?;
    }
    chdir("/").step("enter the root")
}

/// What covers parts of the sandbox's `/proc`, for that of the session.
fn covers() -> Result<Vec<(PathBuf, OwnedFd)>, Failure> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").step("list the mounts")?;
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let places = places.filter(|place| place.starts_with("/proc/")).map(PathBuf::from);
    places
        .map(|place| {
            let cover = mount::view(&place).step("take what covers a part of /proc")?;
            Ok((place, cover))
        })
        .collect()
}

fn shown(source: &OwnedFd, attributes: Attributes) -> Result<OwnedFd, Failure> {
    let view = mount::view_of(source).step("show a place")?;
    mount::restrict_all(&view, attributes).step("restrict a place")?;
    Ok(view)
}

fn own_files(owner: &str, mode: &str) -> Result<OwnedFd, Failure> {
    let options = [
        FsOption::Text("mode", mode),
        FsOption::Text("size", ROOM),
        FsOption::Text("nr_inodes", FILE_COUNT),
        FsOption::Text("uid", owner),
        FsOption::Text("gid", owner),
    ];
    mount::filesystem("tmpfs", &options, FILES).step("make a file system of its own")
}

/// Covers `/dev`, which every sandbox has and every session gets anew, with a place for layers.
pub(super) fn make_stage() -> Result<(), Failure> {
    let options = [FsOption::Text("mode", "700"), FsOption::Text("size", "64k")];
    let stage = mount::filesystem("tmpfs", &options, DATA).step("make the stage")?;
    mount::attach(stage, Path::new(STAGE)).step("mount the stage")
}

/// A file system for what is written to a layer, mounted on the stage. Its name is nobody's guess:
/// a link in the sandbox could otherwise lead to the layer of another session.
pub(super) fn stage(owner: &str) -> Result<PathBuf, Failure> {
    let name = fs::read_to_string("/proc/sys/kernel/random/uuid").step("name a layer")?;
    let at = Path::new(STAGE).join(name.trim());
    fs::create_dir(&at, 0o700).step("make a place for a layer")?;
    mount::attach(own_files(owner, "700")?, &at).step("mount a layer")?;
    Ok(at)
}

/// Removes from the stage what views have left there that were built meanwhile.
pub(super) fn clear_stage(kept: impl Fn(&Path) -> bool) -> Result<(), Failure> {
    for name in fs::names(STAGE).step("look at the stage")? {
        let at = Path::new(STAGE).join(name);
        if !kept(&at) {
            rustix::fs::rmdir(&at).step("clear the stage")?;
        }
    }
    Ok(())
}

/// A copy-on-write view of a directory. What is written goes to the file system that [`stage`] has
/// mounted at `room`, which no other layer may use meanwhile.
fn layer(source: &OwnedFd, kind: Kind, room: &Path) -> Result<OwnedFd, Failure> {
    let below = fstatfs(source).step("look at a layer")?;
    if kind != Kind::Directory || !STACKABLE.contains(&below.f_type.cast_unsigned()) {
        return Err(Errno::OPNOTSUPP).step("lay a layer over what is not a directory of files");
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let room = openat(CWD, room, flags, Mode::empty()).step("open a layer")?;
    stack(source, &room)
}

fn stack(source: &OwnedFd, room: &OwnedFd) -> Result<OwnedFd, Failure> {
    let below = fstat(source).step("look at a layer")?;
    for name in ["upper", "work"] {
        match mkdirat(room, name, Mode::from_raw_mode(0o755)) {
            // A layer that was kept has them, with what its session made of them.
            Err(Errno::EXIST) => continue,
            result => result.step("make a layer")?,
        }
        let (uid, gid) = (Uid::from_raw(below.st_uid), Gid::from_raw(below.st_gid));
        chownat(room, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).step("own a layer")?;
        let mode = Mode::from_raw_mode(below.st_mode & 0o7777);
        rustix::fs::chmodat(room, name, mode, AtFlags::empty()).step("open a layer")?;
    }
    let open = |name: &str| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(room, name, flags, Mode::empty()).step("open a layer")
    };
    let (upper, work) = (open("upper")?, open("work")?);
    // A mount option holds at most 255 bytes, so paths go by way of descriptors.
    let path = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let (lower, upper, work) = (path(source), path(&upper), path(&work));
    let mut options = vec![
        FsOption::Text("lowerdir", &lower),
        FsOption::Text("upperdir", &upper),
        FsOption::Text("workdir", &work),
    ];
    if Rights::current().step("learn its rights")? == Rights::User {
        // Where it keeps its marks; other places are for the host's root.
        options.push(FsOption::Flag("userxattr"));
    }
    mount::filesystem("overlay", &options, FILES).step("stack a layer")
}
