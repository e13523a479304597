//! The road of a new process from fork to the session's execd.

use std::{
    convert::Infallible,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use osb_sys::{
    confine, exec,
    fork::SingleThread,
    identity::Identity,
    netns,
    step::{Failure, Step},
    userns,
};
use rustix::io::fcntl_dupfd_cloexec;

use super::{
    protocol::{Network, Open},
    serve::Isolator,
    view,
};

/// Descriptors at or above this number are ours to keep; those below go to execd.
const OURS: i32 = 64;

/// The descriptors that come with a request.
pub(super) struct Handed {
    boot: OwnedFd,
    channel: OwnedFd,
}

impl Handed {
    pub(super) fn take(fds: Vec<OwnedFd>) -> Result<Self, Failure> {
        let wrong = || std::io::Error::other("the request came without its descriptors");
        let [boot, channel]: [OwnedFd; 2] =
            fds.try_into().map_err(|_| wrong()).step("take the descriptors")?;
        let up = |fd: OwnedFd| fcntl_dupfd_cloexec(fd, OURS).step("move a descriptor");
        Ok(Self { boot: up(boot)?, channel: up(channel)? })
    }
}

/// Turns this freshly forked process into the first process of a session.
pub(super) fn become_execd(
    alone: &SingleThread,
    isolator: &Isolator,
    open: &Open,
    kept: &[PathBuf],
    handed: &Handed,
) -> Result<Infallible, Failure> {
    let program = fcntl_dupfd_cloexec(&isolator.program, OURS).step("move a descriptor")?;
    rustix::process::setsid().step("start a session")?;
    if open.network == Network::None {
        netns::bring_up_loopback().step("bring up the loopback interface")?;
    }
    view::build(open, kept, isolator.owner)?;
    if let Some(users) = &isolator.users {
        userns::become_root_of(alone, users).step("enter the user namespace")?;
    }
    confine::bound_powers(confine::SANDBOX).step("give up capabilities")?;
    confine::drop_powers(confine::SANDBOX).step("give up capabilities")?;
    if let Some((uid, gid, groups)) = &open.identity {
        let identity = Identity { uid: *uid, gid: *gid, groups: groups.clone() };
        identity.assume(alone).step("become the session's user")?;
    }
    isolator.filter.install(alone).step("filter system calls")?;
    let handed = [handed.boot.as_fd(), handed.channel.as_fd()];
    let error = exec::exec_fd(alone, program.as_fd(), &[c"execd", c"--boot"], &handed);
    Err(Failure::new("start execd", &error))
}
