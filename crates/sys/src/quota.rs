//! Limits on what a set of files, a project, takes on its file system.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Which of the three kinds of quota this is about: users, groups or projects.
const PRJQUOTA: u32 = 2;
const Q_SETQUOTA: u32 = 0x0080_0008;
const Q_XGETQSTATV: u32 = 0x5808;
const FS_QSTATV_VERSION1: u64 = 1;
const FS_QUOTA_PDQ_ENFD: u64 = 1 << 5;
const QIF_BLIMITS: u32 = 1;
const QIF_ILIMITS: u32 = 4;
/// The unit of limits, whatever the blocks of the file system are.
const UNIT: u64 = 1024;

const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820;
const FS_XFLAG_PROJINHERIT: u32 = 0x200;

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// `struct if_dqblk` of `linux/quota.h`.
#[repr(C)]
struct Limits {
    hard_blocks: u64,
    soft_blocks: u64,
    space: u64,
    hard_inodes: u64,
    soft_inodes: u64,
    inodes: u64,
    block_grace: u64,
    inode_grace: u64,
    valid: u32,
}

/// Whether the file system on which `place` lies keeps projects within their limits.
pub fn is_enforced(place: impl AsFd) -> bool {
    // `struct fs_quota_statv` has 160 bytes; its first say which version is asked for, and answer
    // with flags.
    let mut state = [0_u64; 32];
    state[0] = FS_QSTATV_VERSION1;
    // SAFETY: version 1 of the structure fits into `state` with room to spare.
    let asked = unsafe { quotactl(place, Q_XGETQSTATV, 0, (&raw mut state).cast()) };
    asked.is_ok() && (state[0] >> 16) & FS_QUOTA_PDQ_ENFD != 0
}

/// Lets the files of a project take so much space and be so many.
pub fn limit(place: impl AsFd, project: u32, bytes: u64, inodes: u64) -> io::Result<()> {
    let mut limits = Limits {
        hard_blocks: bytes.div_ceil(UNIT),
        soft_blocks: 0,
        space: 0,
        hard_inodes: inodes,
        soft_inodes: 0,
        inodes: 0,
        block_grace: 0,
        inode_grace: 0,
        valid: QIF_BLIMITS | QIF_ILIMITS,
    };
    // SAFETY: Q_SETQUOTA reads an `if_dqblk`, whose layout `limits` has.
    unsafe { quotactl(place, Q_SETQUOTA, project, (&raw mut limits).cast()) }
}

/// Makes a directory, with whatever is made in it from now on, part of a project.
pub fn join(directory: impl AsFd, project: u32) -> io::Result<()> {
    let fd = directory.as_fd().as_raw_fd();
    let mut attributes = Attributes {
        flags: 0,
        extent_size: 0,
        extents: 0,
        project: 0,
        copy_extent_size: 0,
        padding: [0; 8],
    };
    // SAFETY: FS_IOC_FSGETXATTR writes an `fsxattr`, whose layout `attributes` has.
    if unsafe { libc::ioctl(fd, FS_IOC_FSGETXATTR, &raw mut attributes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    attributes.project = project;
    attributes.flags |= FS_XFLAG_PROJINHERIT;
    // SAFETY: FS_IOC_FSSETXATTR reads an `fsxattr`, whose layout `attributes` has.
    if unsafe { libc::ioctl(fd, FS_IOC_FSSETXATTR, &raw const attributes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// # Safety
///
/// `argument` must point to what `command` reads or writes.
unsafe fn quotactl(
    place: impl AsFd,
    command: u32,
    project: u32,
    argument: *mut libc::c_void,
) -> io::Result<()> {
    let fd = place.as_fd().as_raw_fd();
    let command = command << 8 | PRJQUOTA;
    // SAFETY: the caller vouches for `argument`; the kernel checks everything else.
    let result = unsafe { libc::syscall(libc::SYS_quotactl_fd, fd, command, project, argument) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
