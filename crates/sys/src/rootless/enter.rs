//! Becoming root of a user namespace.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    path::Path,
};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitOptions, getgid, getpid, getuid, waitpid},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space},
};

use super::{Obstacle, subordinate::Subordinate};
use crate::{
    command::command,
    exec,
    fork::{Fork, SingleThread, fork, unshare},
    fs, mount,
    userns::RANGE,
};

/// Where the helpers may be that write down who a user's subordinate ids are.
const PLACES: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];

/// Makes this process root of a new user namespace, with mounts of its own.
pub fn enter(alone: &SingleThread) -> Result<(), Obstacle> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let lent = Subordinate::of(user)?;
    let maps = [("newuidmap", user, lent.users), ("newgidmap", group, lent.groups)];
    let maps = maps.map(|(helper, own, first)| (helper, [own, first]));
    let mut helpers = Vec::new();
    for (helper, ids) in maps {
        helpers.push((find(helper)?, ids));
    }
    allowed()?;
    let failed = |error: io::Error| Obstacle::new(error.to_string(), "see the error");
    let (begin, go) = pipe().map_err(failed)?;
    let (said, answer) = pipe().map_err(failed)?;
    let own = getpid();
    match fork(alone, UnshareFlags::empty()).map_err(failed)? {
        // The helpers must be run by somebody outside of the new namespace.
        Fork::Child => {
            drop((go, said));
            let mut begin = File::from(begin);
            // Without a word the parent has failed.
            if begin.read(&mut [0]).is_ok_and(|count| count == 1)
                && let Err(cause) = map(own, &helpers)
            {
                // What cannot be said is seen by the maps that are missing.
                File::from(answer).write_all(cause.as_bytes()).ok();
            }
            exec::exit_now(0)
        }
        Fork::Parent { child, .. } => {
            drop((begin, answer));
            let made = unshare(alone, UnshareFlags::NEWUSER | UnshareFlags::NEWNS);
            if made.is_ok() {
                File::from(go).write_all(&[0]).map_err(failed)?;
            } else {
                drop(go);
            }
            let mut cause = String::new();
            File::from(said).read_to_string(&mut cause).map_err(failed)?;
            waitpid(Some(child), WaitOptions::empty()).map_err(|error| failed(error.into()))?;
            made.map_err(|error| refused(&error))?;
            if !cause.is_empty() {
                return Err(Obstacle::new(
                    cause,
                    "see that newuidmap and newgidmap are set-id programs and that the lines of \
                     /etc/subuid and /etc/subgid are right",
                ));
            }
            mount::make_private().map_err(failed)
        }
    }
}

/// Makes this process root of the user namespace that an earlier server of this user had, of which
/// `process` was the first process of a sandbox. Its mounts are copies of the host's.
pub fn join(alone: &SingleThread, process: Pid) -> io::Result<()> {
    let open = |process: &str| File::open(format!("/proc/{process}/ns/user")).map(OwnedFd::from);
    let (own, inner) = (open("self")?, open(&process.as_raw_pid().to_string())?);
    let around = parent(&inner)?;
    // One that had not come far is still in the server's own.
    let servers = if is_same(&around, &own)? { inner } else { around };
    move_into_link_name_space(servers.as_fd(), Some(LinkNameSpaceType::User))?;
    mount::leave_host_mounts(alone)
}

fn parent(namespace: &OwnedFd) -> io::Result<OwnedFd> {
    /// `_IO(0xb7, 2)`, see `ioctl_ns(2)`.
    const NS_GET_PARENT: libc::c_ulong = 0xb702;
    // SAFETY: the request takes no argument and touches no memory.
    let parent = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT) };
    if parent == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(parent) })
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

fn find(helper: &str) -> Result<String, Obstacle> {
    let places = PLACES.iter().map(|place| format!("{place}/{helper}"));
    places.into_iter().find(|path| Path::new(path).exists()).ok_or_else(|| {
        Obstacle::new(
            format!("the program {helper} is not there"),
            "install it: the package is called uidmap on Debian and Ubuntu, shadow-utils on Fedora",
        )
    })
}

/// Has the helpers give a process its ids.
fn map(process: Pid, helpers: &[(String, [u32; 2])]) -> Result<(), String> {
    for (helper, [own, first]) in helpers {
        let ids = ["0", &own.to_string(), "1", "1", &first.to_string(), &RANGE.to_string()];
        let process = process.as_raw_pid().to_string();
        let output = command(helper).arg(process).args(ids).output();
        let output = output.map_err(|error| format!("{helper}: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{helper}: {}", said.trim()));
        }
    }
    Ok(())
}

/// Whether the host's settings let users have namespaces.
fn allowed() -> Result<(), Obstacle> {
    let settings = [
        ("user.max_user_namespaces", "65536"),
        // Of Debian's kernels.
        ("kernel.unprivileged_userns_clone", "1"),
    ];
    for (setting, wanted) in settings {
        if value(setting).is_some_and(|value| value == "0") {
            return Err(Obstacle::new(
                format!("users may not make user namespaces: {setting} is 0"),
                format!("as root: sysctl -w {setting}={wanted}"),
            ));
        }
    }
    Ok(())
}

fn refused(error: &io::Error) -> Obstacle {
    let apparmor = "kernel.apparmor_restrict_unprivileged_userns";
    let is_refusal = matches!(Errno::from_io_error(error), Some(Errno::PERM | Errno::ACCESS));
    if is_refusal && value(apparmor).is_some_and(|value| value == "1") {
        return Obstacle::new(
            "AppArmor lets only chosen programs make user namespaces",
            format!("as root: sysctl -w {apparmor}=0, or give osb a profile that allows userns"),
        );
    }
    Obstacle::new(
        format!("a user namespace cannot be made: {error}"),
        "see whether this runs in a container or under a policy that forbids it",
    )
}

fn value(setting: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{}", setting.replace('.', "/"))).ok()?;
    Some(text.trim().to_owned())
}
