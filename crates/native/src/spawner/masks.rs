//! Parts of `/proc` and `/sys` that tell of the host or act on it as a whole, covered by nothing.
//!
//! Most of them belong to the host's root, who is nobody in a sandbox. The covers hold where the
//! kernel forgets to ask.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use osb_sys::{
    fs,
    mount::{self, Attributes},
};
use rustix::{
    fs::{FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};

use super::protocol::{Failure, Step};

const HIDDEN_PROC: [&str; 15] = [
    // Machine and firmware.
    "acpi",
    "asound",
    "bus",
    "fs",
    "interrupts",
    "irq",
    "scsi",
    // Memory of the kernel, its keys and what it waits for.
    "kcore",
    "keys",
    "latency_stats",
    "sched_debug",
    "timer_list",
    "timer_stats",
    // How much the whole host waits, neighbours included, with an alarm for everybody.
    "pressure",
    // Orders to the kernel by a letter.
    "sysrq-trigger",
];

const HIDDEN_SYS: [&str; 2] = [
    "firmware",
    // From how much power the machine draws, secrets of others have been read.
    "devices/virtual/powercap",
];

/// What covers directories and files, made on the stage.
const DIRECTORY: &str = "hidden-directory";
const FILE: &str = "hidden-file";

/// Covers what is there of the hidden parts, and makes the kernel's settings read-only. `proc` and
/// `sys` are the roots of these mounts. `stage` is a file system that nobody will see, mounted at
/// `at`, and nothing can be written to it afterwards.
pub(super) fn cover(
    at: &Path,
    stage: &OwnedFd,
    proc: &OwnedFd,
    sys: &OwnedFd,
) -> Result<(), Failure> {
    fs::create_dir(at.join(DIRECTORY), 0o555).step("make an empty directory")?;
    fs::write(at.join(FILE), "").step("make an empty file")?;
    // The covers are views of it, and inherit this.
    mount::restrict(stage, READ_ONLY).step("make the stage read-only")?;
    for (root, names) in [(proc, HIDDEN_PROC.as_slice()), (sys, &HIDDEN_SYS)] {
        for name in names {
            hide(at, root, name).step(&format!("hide {name}"))?;
        }
    }
    let settings = open(proc, "sys").step("open the kernel's settings")?;
    let view = mount::view_of(&settings).step("take the kernel's settings")?;
    mount::restrict(&view, READ_ONLY).step("make the kernel's settings read-only")?;
    mount::attach_at(view, settings).step("mount the kernel's settings")
}

const READ_ONLY: Attributes = Attributes::MOUNT_ATTR_RDONLY
    .union(Attributes::MOUNT_ATTR_NOSUID)
    .union(Attributes::MOUNT_ATTR_NODEV)
    .union(Attributes::MOUNT_ATTR_NOEXEC);

fn hide(at: &Path, root: &OwnedFd, name: &str) -> io::Result<()> {
    let place = match open(root, name) {
        Err(Errno::NOENT) => return Ok(()),
        place => place?,
    };
    let is_directory = FileType::from_raw_mode(fstat(&place)?.st_mode) == FileType::Directory;
    let cover = mount::view(&at.join(if is_directory { DIRECTORY } else { FILE }))?;
    mount::attach_at(cover, place)
}

pub(super) fn open(root: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(root.as_fd(), name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Writes the setting of the user namespace that this process is in, past the cover.
pub(super) fn forbid_user_namespaces(limits: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let most = openat(limits, "max_user_namespaces", flags, Mode::empty())?;
    rustix::io::write(most, b"0").map(drop)
}
