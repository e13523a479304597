//! Processes that are not our children: found, watched and ended by descriptor.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A handle on a process that stays true when its number is used again.
pub fn open(pid: Pid) -> io::Result<OwnedFd> {
    Ok(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}

/// Ends the process at once. One that has ended already is success.
pub fn kill(pidfd: impl AsFd) -> io::Result<()> {
    match pidfd_send_signal(pidfd, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The first process of a process namespace directly below ours among `pids`, if it is there.
pub fn init_among(pids: &[Pid]) -> Option<Pid> {
    let own = namespace_ids("self")?.len();
    pids.iter().copied().find(|pid| {
        namespace_ids(&pid.as_raw_pid().to_string())
            .is_some_and(|ids| ids.len() == own + 1 && ids.last().is_some_and(|id| id == "1"))
    })
}

/// The numbers of a process in each process namespace that it is in, ours first.
fn namespace_ids(process: &str) -> Option<Vec<String>> {
    let status = crate::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(ids.split_whitespace().map(str::to_owned).collect())
}
