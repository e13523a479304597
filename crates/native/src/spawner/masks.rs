//! Parts of `/proc` and `/sys` that tell of the host or act on it as a whole, hidden.
//!
//! Most of them belong to the host's root, who is nobody in a sandbox. The covers hold where the
//! kernel forgets to ask.

use std::os::fd::{AsFd, OwnedFd};

use osb_sys::mount::{self, Attributes};
use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
    mount::mount_bind,
    process::fchdir,
};

use super::{
    protocol::{Failure, Step},
    stage,
};

/// What covers a hidden part.
const DIRECTORY: &str = stage::HIDDEN_DIRECTORY;
const FILE: &str = stage::HIDDEN_FILE;

const HIDDEN_PROC: [(&str, &str); 15] = [
    // Machine and firmware.
    ("acpi", DIRECTORY),
    ("asound", DIRECTORY),
    ("bus", DIRECTORY),
    ("fs", DIRECTORY),
    ("interrupts", FILE),
    ("irq", DIRECTORY),
    ("scsi", DIRECTORY),
    // Memory of the kernel, its keys and what it waits for.
    ("kcore", FILE),
    ("keys", FILE),
    ("latency_stats", FILE),
    ("sched_debug", FILE),
    ("timer_list", FILE),
    ("timer_stats", FILE),
    // How much the whole host waits, neighbours included, with an alarm for everybody.
    ("pressure", DIRECTORY),
    // Orders to the kernel by a letter.
    ("sysrq-trigger", FILE),
];

const HIDDEN_SYS: [(&str, &str); 2] = [
    ("firmware", DIRECTORY),
    // From how much power the machine draws, secrets of others have been read.
    ("devices/virtual/powercap", DIRECTORY),
];

/// Covers what is there of the hidden parts, and makes the kernel's settings read-only. `proc` and
/// `sys` are the roots of these mounts.
pub(super) fn cover(proc: &OwnedFd, sys: &OwnedFd) -> Result<(), Failure> {
    for (root, hidden) in [(proc, HIDDEN_PROC.as_slice()), (sys, &HIDDEN_SYS)] {
        fchdir(root).step("enter a file system of the kernel")?;
        for (name, cover) in hidden {
            match mount_bind(*cover, *name) {
                Err(Errno::NOENT) => {}
                hidden => hidden.step(&format!("hide {name}"))?,
            }
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

pub(super) fn open(root: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(root.as_fd(), name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Writes the setting of the user namespace that this process is in, past the cover.
pub(super) fn forbid_user_namespaces(limits: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let most = openat(limits, "max_user_namespaces", flags, Mode::empty())?;
    rustix::io::write(most, b"0").map(drop)
}
