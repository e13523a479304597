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

/// The first process of the innermost process namespace among `pids`, if it is there.
pub fn init_among(pids: &[Pid]) -> Option<Pid> {
    pids.iter().copied().find(|pid| {
        let status = crate::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid()));
        // `NSpid:` lists the process's number in each namespace, ours first.
        status.is_ok_and(|status| {
            status
                .lines()
                .find_map(|line| line.strip_prefix("NSpid:"))
                .is_some_and(|ids| ids.split_whitespace().skip(1).last() == Some("1"))
        })
    })
}
