//! The sandbox's root: an overlay on the image's layers, its own `/dev`, `/proc` and `/sys`, and
//! nothing else.
//!
//! All mounts are made by the host's root, in a mount namespace that belongs to the host, or by the
//! server's user in one that belongs to the server: nobody in the sandbox has power over them.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
};

use osb_sys::{
    fork::SingleThread,
    mount::{self, Attributes, FsOption},
    outlets::FIRST_FREE_PORT,
    rootless::Rights,
    userns::IdBase,
};
use rustix::{
    fs::{FileType, Mode, OFlags, makedev, mkdirat, mknodat, openat, symlinkat},
    io::Errno,
    process::umask,
};

use super::{
    child::Means,
    masks, place,
    protocol::{Failure, RootPlan, Step},
    stage,
};

/// Character devices that every program expects, with their numbers.
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Flags of a mount that holds neither programs nor devices.
const DATA: Attributes = Attributes::MOUNT_ATTR_NOSUID
    .union(Attributes::MOUNT_ATTR_NODEV)
    .union(Attributes::MOUNT_ATTR_NOEXEC);

/// Builds the root of the sandbox and moves this process into it; the host's mounts are gone then.
/// Before that, `furnish` adds to it whatever else is to be there.
///
/// Answers with the settings of user namespaces, which are read-only at their place in `/proc`.
pub(super) fn enter(
    alone: &SingleThread,
    means: &Means,
    plan: &RootPlan,
    own: &OwnedFd,
    users: BorrowedFd<'_>,
    base: IdBase,
    furnish: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<OwnedFd, Failure> {
    let rights = means.rights;
    // While the host's mounts can still be seen.
    let translation = (rights == Rights::Root).then_some(users);
    let layers = plan.layers.iter().map(|path| layer(path, translation));
    let layers = layers.collect::<Result<Vec<_>, _>>()?;
    let views = plan.views.iter().map(|path| Ok((path, view(path)?)));
    let views = views.collect::<Result<Vec<_>, _>>()?;
    let devices = DEVICES.iter().map(|device| Device::take(device, rights));
    let devices = devices.collect::<Result<Vec<_>, _>>()?;
    means.stage.enter(alone)?;
    umask(Mode::empty());

    let overlay = overlay(&layers, own, rights)?;
    let root = stage::put_up(&overlay)?;
    // Whoever made the image may have put anything there, such as links to other places.
    let place = |at: &Path| place::directory(alone, &overlay, at, base);
    for (path, view) in views {
        mount::attach_at(view, place(path)?).step("show a directory of the host")?;
    }
    let proc = mount::filesystem("proc", &[], DATA).step("make /proc")?;
    mount::attach_at(&proc, place(Path::new("/proc"))?).step("mount /proc")?;
    let user_limits = masks::open(&proc, "sys/user").step("open the limits of users")?;
    open_low_ports(&proc).step("let everybody use low ports")?;
    let sysfs =
        mount::filesystem("sysfs", &[], DATA | Attributes::MOUNT_ATTR_RDONLY).step("make /sys")?;
    mount::attach_at(&sysfs, place(Path::new("/sys"))?).step("mount /sys")?;
    masks::cover(&proc, &sysfs)?;
    furnish_dev(&place(Path::new("/dev"))?, devices, base)?;
    furnish(root)?;
    stage::go_live(&overlay)?;
    Ok(user_limits)
}

/// A layer of the image with its owners translated, if they can be.
fn layer(path: &Path, users: Option<BorrowedFd<'_>>) -> Result<OwnedFd, Failure> {
    let view = mount::view(path).step("open a layer")?;
    if let Some(users) = users {
        mount::map_ids(&view, users).step("translate the owners of a layer")?;
    }
    Ok(view)
}

/// The overlay of the image's layers below the sandbox's own files.
fn overlay(layers: &[OwnedFd], own: &OwnedFd, rights: Rights) -> Result<OwnedFd, Failure> {
    let names = stage::lay(layers, own)?;
    let mut options = vec![
        FsOption::Text("lowerdir", &names),
        FsOption::Text("upperdir", "files/upper"),
        FsOption::Text("workdir", "files/work"),
        // A sandbox's files need not survive a crash of the host, so nobody waits for the disk.
        FsOption::Flag("volatile"),
        // Whatever the kernel does when it is not told: what a sandbox wrote is whole without the
        // layers below, so that a snapshot of it is.
        FsOption::Text("redirect_dir", "nofollow"),
        FsOption::Text("metacopy", "off"),
        FsOption::Text("index", "off"),
    ];
    if rights == Rights::User {
        // Where it keeps its marks; other places are for the host's root.
        options.push(FsOption::Flag("userxattr"));
    }
    mount::filesystem("overlay", &options, Attributes::MOUNT_ATTR_NODEV).step("stack the layers")
}

/// Lets every user in this network namespace bind all ports but that of its outlets. By a `/proc` that is new: in
/// one that is used for every network namespace, looking up a setting takes longer with each.
fn open_low_ports(proc: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let first = openat(proc, "sys/net/ipv4/ip_unprivileged_port_start", flags, Mode::empty())?;
    rustix::io::write(first, FIRST_FREE_PORT.to_string().as_bytes()).map(drop)
}

/// A directory of the host, read-only and without its devices and set-id programs.
fn view(path: &Path) -> Result<OwnedFd, Failure> {
    let view = mount::view_or_all(path).step("open a directory of the host")?;
    mount::restrict_all(
        &view,
        Attributes::MOUNT_ATTR_RDONLY
            | Attributes::MOUNT_ATTR_NOSUID
            | Attributes::MOUNT_ATTR_NODEV,
    )
    .step("make a directory of the host read-only")?;
    Ok(view)
}

/// A device for `/dev`.
enum Device {
    Made {
        name: &'static str,
        number: u64,
    },
    /// The host's own, for those who cannot make one. Writing to it is not writing to its file
    /// system.
    Shown {
        name: &'static str,
        mount: OwnedFd,
    },
}

impl Device {
    fn take(
        (name, major, minor): &(&'static str, u32, u32),
        rights: Rights,
    ) -> Result<Self, Failure> {
        if rights == Rights::Root {
            return Ok(Self::Made { name, number: makedev(*major, *minor) });
        }
        let mount = mount::view(&Path::new("/dev").join(name)).step("open a device")?;
        mount::restrict(
            &mount,
            Attributes::MOUNT_ATTR_RDONLY
                | Attributes::MOUNT_ATTR_NOSUID
                | Attributes::MOUNT_ATTR_NOEXEC,
        )
        .step("restrict a device")?;
        Ok(Self::Shown { name, mount })
    }

    fn put(self, dev: &OwnedFd) -> Result<(), Failure> {
        match self {
            Self::Made { name, number } => {
                let (kind, mode) = (FileType::CharacterDevice, Mode::from_raw_mode(0o666));
                mknodat(dev, name, kind, mode, number).step("make a device")
            }
            Self::Shown { name, mount } => {
                let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let made = openat(dev, name, new, Mode::from_raw_mode(0o644));
                let place = made.step("make a place for a device")?;
                mount::attach_at(mount, place).step("show a device")
            }
        }
    }
}

fn furnish_dev(place: &OwnedFd, devices: Vec<Device>, base: IdBase) -> Result<(), Failure> {
    let root = base.0.to_string();
    let dev = mount::filesystem(
        "tmpfs",
        &[
            FsOption::Text("mode", "755"),
            FsOption::Text("size", "64m"),
            FsOption::Text("uid", &root),
            FsOption::Text("gid", &root),
        ],
        Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NOEXEC,
    )
    .step("make /dev")?;
    mount::attach_at(&dev, place).step("mount /dev")?;
    for device in devices {
        device.put(&dev)?;
    }
    for (name, target) in DEVICE_LINKS {
        symlinkat(target, &dev, name).step("make a link in /dev")?;
    }
    for (name, mode) in [("pts", 0o755), ("shm", 0o1777), ("mqueue", 0o755)] {
        mkdirat(&dev, name, Mode::from_raw_mode(mode)).step("make a directory in /dev")?;
    }
    let place = |name| masks::open(&dev, name).step("open a directory in /dev");
    let pts = [
        FsOption::Flag("newinstance"),
        FsOption::Text("ptmxmode", "0666"),
        FsOption::Text("mode", "0620"),
        FsOption::Text("uid", &root),
        // The host has a few thousand for everybody.
        FsOption::Text("max", "256"),
    ];
    let pts = mount::filesystem(
        "devpts",
        &pts,
        Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NOEXEC,
    )
    .step("make /dev/pts")?;
    mount::attach_at(pts, place("pts")?).step("mount /dev/pts")?;
    let mqueue = mount::filesystem("mqueue", &[], DATA).step("make /dev/mqueue")?;
    mount::attach_at(mqueue, place("mqueue")?).step("mount /dev/mqueue")
}
