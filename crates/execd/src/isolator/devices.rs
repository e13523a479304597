//! The session's `/dev`: the devices that every program expects, and nothing of the sandbox's own.

use std::{os::fd::OwnedFd, path::Path};

use osb_sys::{
    fs,
    mount::{self, Attributes, FsOption},
    step::{Failure, Step},
};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, major, minor, openat};

use super::view::DATA;

/// Character devices, with their numbers.
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

const AT: &str = "/dev";

/// The devices, out of the sandbox's `/dev`.
pub(super) fn take() -> Result<Vec<(&'static str, OwnedFd)>, Failure> {
    let at = Path::new(AT);
    let mut taken = Vec::new();
    for (name, of, number) in DEVICES {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A sandbox that has lost one does without.
        let Ok(device) = openat(CWD, at.join(name), flags, Mode::empty()) else { continue };
        let stat = fstat(&device).step("look at a device")?;
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        if is_device && (major(stat.st_rdev), minor(stat.st_rdev)) == (of, number) {
            taken.push((name, mount::view_of(&device).step("open a device")?));
        }
    }
    Ok(taken)
}

/// Covers `/dev`. `owner` is who root of the session is out here.
pub(super) fn mount(devices: Vec<(&'static str, OwnedFd)>, owner: &str) -> Result<(), Failure> {
    let at = Path::new(AT);
    let options = [
        FsOption::Text("mode", "755"),
        FsOption::Text("size", "64k"),
        FsOption::Text("uid", owner),
        FsOption::Text("gid", owner),
    ];
    let dev = mount::filesystem("tmpfs", &options, DATA).step("make /dev")?;
    mount::attach(&dev, at).step("mount /dev")?;
    for (name, device) in devices {
        let place = at.join(name);
        fs::write(&place, "").step("make a place for a device")?;
        mount::attach(device, &place).step("show a device")?;
    }
    for (name, target) in LINKS {
        fs::symlink(target, at.join(name)).step("make a link in /dev")?;
    }
    for name in ["pts", "shm", "mqueue"] {
        fs::create_dir(at.join(name), 0o755).step("make a directory in /dev")?;
    }
    let pts = [
        FsOption::Flag("newinstance"),
        FsOption::Text("ptmxmode", "0666"),
        FsOption::Text("mode", "0620"),
        FsOption::Text("uid", owner),
        FsOption::Text("max", "64"),
    ];
    let quiet = Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NOEXEC;
    let pts = mount::filesystem("devpts", &pts, quiet).step("make /dev/pts")?;
    mount::attach(pts, &at.join("pts")).step("mount /dev/pts")?;
    let shm = [FsOption::Text("mode", "1777"), FsOption::Text("size", "64m")];
    let shm = mount::filesystem("tmpfs", &shm, DATA).step("make /dev/shm")?;
    mount::attach(shm, &at.join("shm")).step("mount /dev/shm")?;
    // Where the kernel has no message queues nobody misses them.
    if let Ok(queues) = mount::filesystem("mqueue", &[], DATA) {
        mount::attach(queues, &at.join("mqueue")).step("mount /dev/mqueue")?;
    }
    mount::restrict(&dev, Attributes::MOUNT_ATTR_RDONLY).step("make /dev read-only")
}
