//! Processes that are not our children: found, watched and ended by descriptor.

use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    str::FromStr,
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

/// Asks the process to end, as far as it listens. One that has ended already is success.
pub fn ask_to_end(pidfd: impl AsFd) -> io::Result<()> {
    match pidfd_send_signal(pidfd, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether the process does something of its own when it is asked to end. The first process of a
/// namespace that does not would never hear of it.
pub fn listens(pidfd: &OwnedFd) -> bool {
    let line = |text: &str, name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.map(|value| value.trim().to_owned())
    };
    let info = crate::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()));
    let pid = info.ok().and_then(|info| line(&info, "Pid:"));
    let status = pid.map(|pid| crate::fs::read_to_string(format!("/proc/{pid}/status")));
    let caught = status.and_then(Result::ok).and_then(|status| line(&status, "SigCgt:"));
    let caught = caught.and_then(|caught| u64::from_str_radix(&caught, 16).ok());
    caught.is_some_and(|caught| caught & (1 << (Signal::TERM.as_raw() - 1)) != 0)
}

/// The signal of this number, if there is one that a program may send another.
pub fn signal(number: i32) -> Option<Signal> {
    match number {
        // The last that have a name of their own are below 32, and libraries keep the first of the others.
        35..=64 => {
            // SAFETY: these are signals of every Linux, and no library uses them for itself.
            Some(unsafe { Signal::from_raw_unchecked(number) })
        }
        number => Signal::from_named_raw(number),
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

/// What finds a process again that is nobody's child: its number, and when it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    pid: Pid,
    started: u64,
}

impl Trace {
    /// That of this process, in the numbers that `/proc` shows.
    pub fn of_self() -> io::Result<Self> {
        let stat = crate::fs::read_to_string("/proc/self/stat").map_err(io::Error::other)?;
        Self::from_stat(&stat).ok_or_else(|| io::Error::other("/proc/self/stat is not understood"))
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The process, if it is still there and is the first of a process namespace below ours.
    pub fn find(&self) -> Option<OwnedFd> {
        let pidfd = open(self.pid).ok()?;
        let stat = format!("/proc/{}/stat", self.pid.as_raw_pid());
        let stat = crate::fs::read_to_string(stat).ok()?;
        // One that has ended stays for as long as nobody has asked how.
        let has_ended = stat.rsplit_once(") ")?.1.starts_with(['Z', 'X']);
        let now = Self::from_stat(&stat)?;
        (now == *self && !has_ended && init_among(&[self.pid]).is_some()).then_some(pidfd)
    }

    /// From a line of `proc_pid_stat(5)`, in which the name of the program may hold anything.
    fn from_stat(stat: &str) -> Option<Self> {
        let (pid, _) = stat.split_once(' ')?;
        let (_, rest) = stat.rsplit_once(')')?;
        let started = rest.split_whitespace().nth(19)?.parse().ok()?;
        Some(Self { pid: Pid::from_raw(pid.parse().ok()?)?, started })
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid.as_raw_pid(), self.started)
    }
}

impl FromStr for Trace {
    type Err = io::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (pid, started) = text.split_once(' ')?;
            let pid = Pid::from_raw(pid.parse().ok()?)?;
            Some(Self { pid, started: started.parse().ok()? })
        };
        parse().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a process"))
    }
}

/// The numbers of a process in each process namespace that it is in, ours first.
fn namespace_ids(process: &str) -> Option<Vec<String>> {
    let status = crate::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(ids.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_signals_as_far_as_they_may_be_sent() {
        assert_eq!(signal(15), Some(Signal::TERM));
        assert_eq!(signal(37).map(Signal::as_raw), Some(37));
        for none in [-1, 0, 32, 33, 34, 65] {
            assert_eq!(signal(none), None, "{none}");
        }
    }

    #[test]
    fn who_listens_is_told_from_who_does_not() {
        let child = |script: &str| {
            let mut sh = crate::command::command("/bin/sh");
            sh.args(["-c", script]).stdout(std::process::Stdio::piped()).spawn().unwrap()
        };
        let mut deaf = child("echo; read line");
        let mut listening = child("trap 'exit 0' TERM; echo; while :; do sleep 0.01; done");
        for (child, expected) in [(&mut deaf, false), (&mut listening, true)] {
            let mut said = [0; 1];
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
            let pidfd = open(Pid::from_child(child)).unwrap();
            assert_eq!(listens(&pidfd), expected);
            ask_to_end(&pidfd).unwrap();
            child.wait().unwrap();
            ask_to_end(&pidfd).unwrap();
        }
    }

    #[test]
    fn a_process_is_known_by_its_number_and_its_beginning() {
        let stat = "17 (a) b) S 1 17 17 0 -1 4194560 2 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        let trace = Trace::from_stat(stat).unwrap();
        assert_eq!(trace.to_string(), "17 4711");
        assert_eq!("17 4711".parse::<Trace>().unwrap(), trace);
        for bad in ["", "17", "0 1", "x 1", "17 "] {
            assert!(bad.parse::<Trace>().is_err(), "{bad:?}");
        }
        let own = Trace::of_self().unwrap();
        assert_eq!(own.pid(), rustix::process::getpid());
        assert!(own.find().is_none(), "this is no first process");
    }
}
