//! The sandbox's root: an overlay on the image's layers, its own `/dev`, `/proc` and `/sys`, and
//! nothing else.
//!
//! All mounts are made by the host's root, in a mount namespace that belongs to the host: nobody
//! in the sandbox has power over them.

use std::{
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use osb_sys::{
    fs,
    mount::{self, Attributes, FsOption},
    userns::IdBase,
};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, makedev, mknodat, openat},
    mount::{UnmountFlags, unmount},
    process::{chdir, pivot_root},
};

use super::{
    masks,
    protocol::{Failure, RootPlan, Step},
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
    plan: &RootPlan,
    files: BorrowedFd<'_>,
    users: BorrowedFd<'_>,
    base: IdBase,
    furnish: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<OwnedFd, Failure> {
    let stage = mount::filesystem("tmpfs", &[FsOption::Text("mode", "700")], DATA)
        .step("make a file system for the layers")?;
    mount::attach(&stage, &plan.stage).step("mount the stage")?;
    let root = plan.stage.join("root");
    fs::create_dir(&root, 0o755).step("make the new root")?;

    let overlay = overlay(plan, files, users)?;
    mount::attach(overlay, &root).step("mount the root")?;
    for path in &plan.views {
        show(path, &inside(&root, path))?;
    }
    let proc = mount::filesystem("proc", &[], DATA).step("make /proc")?;
    mount::attach(&proc, &root.join("proc")).step("mount /proc")?;
    let user_limits = masks::open(&proc, "sys/user").step("open the limits of users")?;
    let sysfs =
        mount::filesystem("sysfs", &[], DATA | Attributes::MOUNT_ATTR_RDONLY).step("make /sys")?;
    mount::attach(&sysfs, &root.join("sys")).step("mount /sys")?;
    masks::cover(&plan.stage, &stage, &proc, &sysfs)?;
    devices(&root.join("dev"), base)?;
    furnish(&root)?;

    chdir(&root).step("enter the new root")?;
    // With both names the same, the old root ends up mounted over the new one and is taken away
    // from there; no directory for it is needed. See pivot_root(2).
    pivot_root(".", ".").step("make it the root")?;
    unmount(".", UnmountFlags::DETACH).step("leave the host's mounts")?;
    chdir("/").step("enter the root")?;
    Ok(user_limits)
}

/// The overlay of the image's layers below the sandbox's own files.
fn overlay(
    plan: &RootPlan,
    files: BorrowedFd<'_>,
    users: BorrowedFd<'_>,
) -> Result<OwnedFd, Failure> {
    // A mount option holds at most 255 bytes, so paths go by way of descriptors.
    let mut lower = Vec::new();
    for (index, layer) in plan.layers.iter().enumerate() {
        let view = mount::view(layer).step("open a layer")?;
        mount::map_ids(&view, users).step("translate the owners of a layer")?;
        // Kernels before 6.15 stack only on mounts that have a place.
        let at = plan.stage.join(index.to_string());
        fs::create_dir(&at, 0o755).step("make a place for a layer")?;
        mount::attach(&view, &at).step("mount a layer")?;
        lower.push(view);
    }
    let at = plan.stage.join("files");
    fs::create_dir(&at, 0o700).step("make a place for the sandbox's own files")?;
    mount::attach(files, &at).step("mount the sandbox's own files")?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |name| openat(files, name, flags, Mode::empty());
    let upper = open("upper").step("open the sandbox's own files")?;
    let work = open("work").step("open the overlay's work directory")?;
    let by_descriptor = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    // There may be many layers, so they go by the shortest names they have.
    chdir(&plan.stage).step("enter the stage")?;
    let layers = (0..lower.len()).map(|index| index.to_string()).collect::<Vec<_>>().join(":");
    let (upper_path, work_path) = (by_descriptor(&upper), by_descriptor(&work));
    let options = [
        FsOption::Text("lowerdir", &layers),
        FsOption::Text("upperdir", &upper_path),
        FsOption::Text("workdir", &work_path),
        // A sandbox's files need not survive a crash of the host, so nobody waits for the disk.
        FsOption::Flag("volatile"),
        // Whatever the kernel does when it is not told: what a sandbox wrote is whole without the
        // layers below, so that a snapshot of it is.
        FsOption::Text("redirect_dir", "nofollow"),
        FsOption::Text("metacopy", "off"),
        FsOption::Text("index", "off"),
    ];
    mount::filesystem("overlay", &options, Attributes::MOUNT_ATTR_NODEV).step("stack the layers")
}

/// Shows a directory of the host, read-only and without its devices and set-id programs.
fn show(path: &Path, target: &Path) -> Result<(), Failure> {
    let view = mount::view(path).step("open a directory of the host")?;
    mount::restrict(
        &view,
        Attributes::MOUNT_ATTR_RDONLY
            | Attributes::MOUNT_ATTR_NOSUID
            | Attributes::MOUNT_ATTR_NODEV,
    )
    .step("make a directory of the host read-only")?;
    mount::attach(view, target).step("show a directory of the host")
}

fn devices(at: &Path, base: IdBase) -> Result<(), Failure> {
    let root = base.0.to_string();
    let tmpfs = mount::filesystem(
        "tmpfs",
        &[
            FsOption::Text("mode", "755"),
            FsOption::Text("size", "64k"),
            FsOption::Text("uid", &root),
            FsOption::Text("gid", &root),
        ],
        Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NOEXEC,
    )
    .step("make /dev")?;
    mount::attach(tmpfs, at).step("mount /dev")?;
    for (name, major, minor) in DEVICES {
        let path = at.join(name);
        mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), makedev(major, minor))
            .step("make a device")?;
        fs::set_mode(&path, 0o666).step("open a device to everybody")?;
    }
    for (name, target) in DEVICE_LINKS {
        fs::symlink(target, at.join(name)).step("make a link in /dev")?;
    }
    for name in ["pts", "shm", "mqueue"] {
        fs::create_dir(at.join(name), 0o755).step("make a directory in /dev")?;
    }
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
    mount::attach(pts, &at.join("pts")).step("mount /dev/pts")?;
    let shm = [FsOption::Text("mode", "1777"), FsOption::Text("size", "64m")];
    let shm = mount::filesystem("tmpfs", &shm, DATA).step("make /dev/shm")?;
    mount::attach(shm, &at.join("shm")).step("mount /dev/shm")?;
    let mqueue = mount::filesystem("mqueue", &[], DATA).step("make /dev/mqueue")?;
    mount::attach(mqueue, &at.join("mqueue")).step("mount /dev/mqueue")
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
