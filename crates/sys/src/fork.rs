//! Making processes in new namespaces.

use std::{
    io,
    marker::PhantomData,
    os::fd::{FromRawFd, OwnedFd},
};

use rustix::{
    process::Pid,
    thread::{UnshareFlags, unshare_unsafe},
};

/// Proof that this process has one thread, so that a child made by `clone3` may run ordinary code:
/// no other thread can have held a lock at that moment.
///
/// It cannot leave its thread, and whoever holds it must not start another one.
#[derive(Debug)]
pub struct SingleThread {
    not_send: PhantomData<*const ()>,
}

impl SingleThread {
    /// Counts the threads of this process.
    pub fn prove() -> io::Result<Self> {
        let threads = crate::fs::count_entries("/proc/self/task").map_err(io::Error::other)?;
        if threads == 1 {
            Ok(Self { not_send: PhantomData })
        } else {
            Err(io::Error::other(format!("this process has {threads} threads instead of one")))
        }
    }
}

/// What a fork returns: twice, once in each process.
#[derive(Debug)]
pub enum Fork {
    Parent { child: Pid, pidfd: OwnedFd },
    Child,
}

/// Makes a child in the given new namespaces.
///
/// With a new process namespace the child is its first process.
pub fn fork(_alone: &SingleThread, namespaces: UnshareFlags) -> io::Result<Fork> {
    let mut pidfd: libc::c_int = -1;
    let mut args = CloneArgs {
        flags: u64::from(namespaces.bits()) | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    // SAFETY: the flags share neither memory nor a stack, so this is a fork; `SingleThread` says
    // that no other thread exists whose locks the child would inherit held; `args` and the
    // `pidfd` it points to outlive the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
    match pid {
        0 => Ok(Fork::Child),
        -1 => Err(io::Error::last_os_error()),
        pid => {
            // SAFETY: the kernel stored a fresh descriptor there because of CLONE_PIDFD, and
            // nobody else knows its number.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            let child = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let child = child.ok_or_else(|| io::Error::other("clone3 gave an impossible pid"))?;
            Ok(Fork::Parent { child, pidfd })
        }
    }
}

/// Moves this process into new namespaces.
pub fn unshare(_alone: &SingleThread, namespaces: UnshareFlags) -> io::Result<()> {
    if namespaces.intersects(UnshareFlags::FILES) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "descriptors are not a namespace"));
    }
    // SAFETY: without FILES no descriptor changes its meaning, and `SingleThread` says that no
    // other thread is left behind in the old namespaces.
    unsafe { unshare_unsafe(namespaces)? };
    Ok(())
}

/// `struct clone_args` in its first version (64 bytes), which every kernel with `clone3` knows.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}
