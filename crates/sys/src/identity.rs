//! Running a program as another user.

use std::io;

use rustix::{
    process::{Gid, Uid},
    thread::{
        CapabilitySets, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};

use crate::fork::SingleThread;

/// The user and groups of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    /// The supplementary groups, in place of those of the parent.
    pub groups: Vec<u32>,
}

impl Identity {
    /// Gives this process the identity for good, and with it no powers unless it is root's.
    pub fn assume(&self, _alone: &SingleThread) -> rustix::io::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)
    }

    /// Makes this process run with this identity: a child that is about to become a program, with
    /// a single thread. The error is the number of the operating system.
    pub(crate) fn put_on(&self) -> Result<(), i32> {
        let Self { uid, gid, groups } = self;
        // The system calls and not the functions of libc: those signal other threads, of which
        // such a process has none.
        //
        // SAFETY: the pointer and the length are those of `groups`.
        let set = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
        done(set)?;
        // SAFETY: takes a number and touches no memory.
        done(unsafe { libc::syscall(libc::SYS_setgid, *gid) })?;
        // SAFETY: takes a number and touches no memory.
        done(unsafe { libc::syscall(libc::SYS_setuid, *uid) })
    }
}

/// Does `work` on files as this user and group, who then own what it makes, but with all powers
/// of this process.
pub fn with_files_of<T>(
    _alone: &SingleThread,
    uid: u32,
    gid: u32,
    work: impl FnOnce() -> T,
) -> rustix::io::Result<T> {
    let (was, before) = (rustix::process::geteuid(), rustix::process::getegid());
    set_thread_res_gid(None, Gid::from_raw(gid), None)?;
    set_thread_res_uid(None, Uid::from_raw(uid), None)?;
    // They are set aside with the user and can be taken up again: the real user still has them.
    let powers = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: powers.permitted, ..powers })?;
    let done = work();
    set_thread_res_uid(None, was, None)?;
    set_thread_res_gid(None, before, None)?;
    Ok(done)
}

fn done(result: libc::c_long) -> Result<(), i32> {
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
