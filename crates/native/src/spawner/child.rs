//! The road of a new process from fork to execd.

use std::{
    convert::Infallible,
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use osb_sys::{
    confine, doorkeeper, exec,
    fork::{self, Fork, SingleThread},
    message, netns,
    rootless::Rights,
    userns::{self, IdBase},
};
use rustix::{
    fs::{Mode, OFlags},
    io::fcntl_dupfd_cloexec,
    thread::{UnshareFlags, set_name, set_no_new_privs},
};

use super::{
    ahead::Namespaces,
    bounds::{self, Bounds, Touched},
    masks,
    protocol::{Failure, Spawn, Step},
    root,
    stage::Stage,
    volumes,
};

use crate::sandbox::alive;

/// What every sandbox calls itself.
const HOST_NAME: &[u8] = b"sandbox";
/// Descriptors at or above this number are ours to keep; those below go to execd.
const OURS: i32 = 64;

/// The descriptors that come with a request.
pub(super) struct Handed {
    program: OwnedFd,
    status: OwnedFd,
    files: OwnedFd,
    /// What execd finds from descriptor 3 on.
    given: Vec<OwnedFd>,
    volumes: Vec<OwnedFd>,
}

impl Handed {
    pub(super) fn take(fds: Vec<OwnedFd>, spawn: &Spawn) -> Result<Self, Failure> {
        let wrong = || std::io::Error::other("the request came without its descriptors");
        let mut up = fds.into_iter().map(|fd| fcntl_dupfd_cloexec(fd, OURS));
        let mut next = || up.next().ok_or_else(wrong)?.map_err(std::io::Error::from);
        let program = next().step("take the descriptor of execd")?;
        let status = next().step("take the descriptor for failures")?;
        let files = next().step("take the sandbox's own files")?;
        let mut given: Vec<_> =
            up.collect::<Result<_, _>>().step("take the descriptors for execd")?;
        let volumes = spawn.root.volumes.iter().filter(|volume| volume.comes_as_descriptor());
        let first = given.len().checked_sub(volumes.count()).ok_or_else(wrong);
        let volumes = given.split_off(first.step("take the descriptors of volumes")?);
        Ok(Self { program, status, files, given, volumes })
    }

    /// Tells the server what went wrong. If even that fails, the pipe's end without execd's
    /// socket answering says enough.
    pub(super) fn report(&self, failure: &Failure) {
        if let Ok(text) = serde_json::to_vec(failure) {
            rustix::io::write(&self.status, &text).ok();
        }
    }
}

/// What is made once for all sandboxes.
pub(super) struct Means {
    pub(super) rights: Rights,
    pub(super) bounds: Bounds,
    pub(super) stage: Stage,
}

/// Turns this freshly forked process into the first process of a sandbox.
pub(super) fn become_execd(
    alone: &SingleThread,
    spawn: &Spawn,
    handed: &Handed,
    namespaces: &Namespaces,
    maps: &[Option<OwnedFd>],
    means: &Means,
) -> Result<Infallible, Failure> {
    let rights = means.rights;
    // First of all, so that whatever happens later can be found.
    if rights == Rights::User {
        alive::note(handed.files.as_fd()).step("write down which process it is")?;
    }
    for door in &spawn.doors {
        osb_sys::fs::write(door, "0").step("enter the control group")?;
    }
    fork::unshare(alone, UnshareFlags::NEWCGROUP).step("make a control group namespace")?;
    // What the server has of these is not for sandboxes.
    let reset = osb_sys::fs::write("/proc/self/oom_score_adj", "0");
    unless_worse(rights, reset.map_err(|error| error.kind()))
        .step("reset the score for lack of memory")?;
    let reset = rustix::process::setpriority_process(None, 0);
    unless_worse(rights, reset.map_err(rustix::io::Errno::kind)).step("reset the priority")?;
    rustix::process::setsid().step("start a session")?;
    rustix::system::sethostname(HOST_NAME).step("set the host name")?;
    let Namespaces { users, network } = namespaces;
    let base = rights.ids_of(spawn.base);
    netns::enter(alone, &network.namespace).step("enter the network namespace")?;

    let furnish = |root: &Path| {
        let plans = &spawn.root.volumes;
        let translation = (rights == Rights::Root).then_some(users.as_fd());
        volumes::attach(alone, root, plans, &handed.volumes, maps, translation, base)
    };
    let (plan, own) = (&spawn.root, &handed.files);
    let user_limits = root::enter(alone, means, plan, own, users.as_fd(), base, furnish)?;

    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .step("open /dev/null")?;
    rustix::stdio::dup2_stdin(&null).step("detach standard input")?;
    rustix::stdio::dup2_stdout(&null).step("detach standard output")?;
    rustix::stdio::dup2_stderr(&null).step("detach standard error")?;
    Bounds::limit_descriptors()?;
    rustix::process::umask(Mode::from_raw_mode(0o022));

    let up = |fd: &OwnedFd| fcntl_dupfd_cloexec(fd, OURS).step("move a descriptor");
    let users = up(users)?;
    let (door, inside) = message::channel().step("make the isolator's channel")?;
    let touched = volumes::touched(&spawn.root.volumes);
    let isolator = Isolator { channel: up(&door)?, program: up(&handed.program)?, users, touched };
    let users = isolator.post(alone, base)?;
    let inside = up(&inside)?;
    userns::become_root_of(alone, &users).step("enter the user namespace")?;
    if let Some(most) = spawn.processes {
        bounds::limit_processes(most)?;
    }
    exec::join_new_session_keyring(alone).step("leave the server's keys behind")?;
    // A namespace below this one would give its maker every capability again, and with them most
    // of the kernel to attack.
    masks::forbid_user_namespaces(&user_limits).step("forbid further user namespaces")?;
    confine::bound_powers(confine::SANDBOX).step("give up capabilities")?;
    set_no_new_privs(true).step("forbid new privileges")?;
    means.bounds.filter_calls(alone, touched)?;

    let mut given: Vec<_> = handed.given.iter().map(AsFd::as_fd).collect();
    given.push(inside.as_fd());
    let error = exec::exec_fd(alone, handed.program.as_fd(), &[c"execd", c"--boot"], &given);
    Err(Failure::new("start execd", &error))
}

/// Without the rights of root a process cannot better what it has of these: it keeps them then.
fn unless_worse(rights: Rights, result: Result<(), io::ErrorKind>) -> io::Result<()> {
    match result {
        Err(io::ErrorKind::PermissionDenied) if rights == Rights::User => Ok(()),
        result => result.map_err(io::Error::from),
    }
}

/// What the process has that makes isolated sessions.
struct Isolator {
    channel: OwnedFd,
    program: OwnedFd,
    users: OwnedFd,
    touched: Touched,
}

impl Isolator {
    /// Leaves a process behind that is in all of the sandbox's namespaces but that of its users, so
    /// that it can make mounts that nobody inside has power over. Until execd asks for the first
    /// isolated session it only waits. It ends with the sandbox, whose first process is its parent.
    fn post(self, alone: &SingleThread, base: IdBase) -> Result<OwnedFd, Failure> {
        let owner = CString::new(base.0.to_string()).map_err(std::io::Error::from);
        let owner = owner.step("name the sandbox's root")?;
        match fork::fork(alone, UnshareFlags::empty()).step("start the isolator")? {
            Fork::Parent { .. } => Ok(self.users),
            Fork::Child => {
                // Only for those who look at the list of processes.
                let _ = set_name(c"isolator");
                let mut argv = vec![c"execd", c"--isolator", c"--owner", &owner];
                if self.touched == Touched::HostFiles {
                    argv.push(c"--host-files");
                }
                doorkeeper::wait(alone, &self.channel, &self.program, &argv, &[self.users])
            }
        }
    }
}
