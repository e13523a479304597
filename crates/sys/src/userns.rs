//! User namespaces: which ids a sandbox has, and which ids of the host they are.

use std::{fs::File, io, os::fd::OwnedFd};

use rustix::{
    process::{Signal, set_parent_process_death_signal},
    thread::{
        CapabilitiesSecureBits, UnshareFlags, capabilities_secure_bits,
        set_capabilities_secure_bits,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    exec,
    fork::{Fork, SingleThread, fork},
    rootless::Rights,
};

/// How many ids a sandbox has: 0 to 65535, of which 65534 is nobody.
pub const RANGE: u32 = 65_536;

/// The first of [`RANGE`] ids of the host that belong to one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdBase(pub u32);

/// `count` ids from `inside` on in a user namespace, which are those from `outside` on around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// A user namespace for the sandbox to which `own` was given, with the ids that it has outside.
///
/// The namespace lives as long as the descriptor; the process that made it is gone again.
pub fn user_namespace(alone: &SingleThread, own: IdBase, rights: Rights) -> io::Result<OwnedFd> {
    let all = [IdRange { inside: 0, outside: rights.ids_of(own).0, count: RANGE }];
    // What is used in a namespace counts for its maker too: watches of files, locked memory, signals
    // that wait. Made by root, one sandbox could use up what all others and the host have together.
    let before = become_user(alone, own.0)?;
    let begun = begin(alone);
    become_self(alone, before)?;
    finish(begun?, &all, &all)
}

/// A user namespace with these users and groups, to translate owners of files with.
pub fn mapped_namespace(
    alone: &SingleThread,
    users: &[IdRange],
    groups: &[IdRange],
) -> io::Result<OwnedFd> {
    finish(begin(alone)?, users, groups)
}

/// Starts a process in a user namespace of its own.
fn begin(alone: &SingleThread) -> io::Result<(rustix::process::Pid, OwnedFd)> {
    match fork(alone, UnshareFlags::NEWUSER)? {
        Fork::Child => stand_by(alone),
        Fork::Parent { child, pidfd } => Ok((child, pidfd)),
    }
}

/// Gives the namespace of that process its ids, and ends the process.
fn finish(
    (child, pidfd): (rustix::process::Pid, OwnedFd),
    users: &[IdRange],
    groups: &[IdRange],
) -> io::Result<OwnedFd> {
    let namespace = mapped(child, users, groups);
    rustix::process::pidfd_send_signal(&pidfd, Signal::KILL)?;
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())?;
    namespace
}

/// What the process does that a namespace begins with: nothing.
fn stand_by(alone: &SingleThread) -> ! {
    // It must not outlive its parent, nor keep anything of it open: whoever waits for the parent's
    // end would wait for ever.
    set_parent_process_death_signal(Some(Signal::KILL)).ok();
    exec::close_all(alone);
    loop {
        // Waits for the signal that ends it; the parent only needs its namespace.
        rustix::event::pause();
    }
}

/// Makes this process act as the user, with all the powers that it has. Answers with what it needs
/// to act as itself again.
fn become_user(_alone: &SingleThread, user: u32) -> io::Result<(u32, CapabilitiesSecureBits)> {
    let own = (rustix::process::geteuid().as_raw(), capabilities_secure_bits()?);
    set_capabilities_secure_bits(own.1 | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    set_effective_user(user)?;
    Ok(own)
}

fn become_self(
    _alone: &SingleThread,
    (user, bits): (u32, CapabilitiesSecureBits),
) -> io::Result<()> {
    set_effective_user(user)?;
    Ok(set_capabilities_secure_bits(bits)?)
}

fn set_effective_user(user: u32) -> io::Result<()> {
    let same = libc::uid_t::MAX;
    // SAFETY: takes numbers and touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, same, user, same) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn mapped(
    child: rustix::process::Pid,
    users: &[IdRange],
    groups: &[IdRange],
) -> io::Result<OwnedFd> {
    let proc = format!("/proc/{}", child.as_raw_pid());
    for (file, ranges) in [("uid_map", users), ("gid_map", groups)] {
        let line =
            |range: &IdRange| format!("{} {} {}\n", range.inside, range.outside, range.count);
        let map: String = ranges.iter().map(line).collect();
        crate::fs::write(format!("{proc}/{file}"), &map).map_err(io::Error::other)?;
    }
    Ok(File::open(format!("{proc}/ns/user"))?.into())
}

/// Makes this process root of `namespace`, with all capabilities there and none outside.
pub fn become_root_of(_alone: &SingleThread, namespace: &OwnedFd) -> io::Result<()> {
    use rustix::{
        process::{Gid, Uid},
        thread::{
            LinkNameSpaceType, move_into_link_name_space, set_thread_groups, set_thread_res_gid,
            set_thread_res_uid,
        },
    };
    move_into_link_name_space(std::os::fd::AsFd::as_fd(namespace), Some(LinkNameSpaceType::User))?;
    set_thread_groups(&[])?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    Ok(())
}
