//! The isolator's loop of request and reply.

use std::{
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
};

use osb_core::agent::isolator::{CHANNEL_FD, USERS_FD};
use osb_sys::{
    confine, exec,
    fork::{Fork, SingleThread, fork},
    inherited, message, mount,
    seccomp::Filter,
    step::{Failure, Step},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    io::{Errno, fcntl_dupfd_cloexec},
    process::{Pid, WaitOptions, waitpid},
    stdio::stdin,
    thread::{CapabilitySet, UnshareFlags, set_name, set_no_new_privs},
};

use super::{
    child::{self, Handed},
    protocol::{Open, PLACES, Reply, Request},
    uppers::Uppers,
    view,
};

/// The most sessions at a time.
pub(crate) const SESSIONS: usize = 32;

/// How long a new process may take to become execd, in seconds.
const PATIENCE: i64 = 20;

/// What it takes to put a view together and to hand it to somebody without power.
const POWERS: CapabilitySet = confine::SANDBOX
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_ADMIN);

/// What every session is made with.
#[derive(Debug)]
pub(super) struct Isolator {
    /// The program that runs in the session, which is also this one.
    pub(super) program: OwnedFd,
    /// The user namespace of the sandbox, if it has one of its own.
    pub(super) users: Option<OwnedFd>,
    /// Who root of the sandbox is out here.
    pub(super) owner: u32,
    /// What the programs of a session may call.
    pub(super) filter: Filter,
}

#[derive(Debug)]
struct Session {
    pid: Pid,
    pidfd: OwnedFd,
}

/// Makes sessions until execd is gone. With `owner` the sandbox has a user namespace, that is its
/// root, and the descriptors are those of [`osb_core::agent::isolator`]; otherwise the channel is
/// the standard input. `filter` makes what the programs of sessions may call.
///
/// To be called first thing in a process of its own, before it has any other thread.
pub(crate) fn serve(owner: Option<u32>, filter: fn() -> io::Result<Filter>) -> Result<(), Failure> {
    let alone = SingleThread::prove().step("be alone in the process")?;
    // Only for those who look at the list of processes.
    let _ = set_name(c"isolator");
    let channel = match owner {
        Some(_) => inherited::take(CHANNEL_FD),
        None => fcntl_dupfd_cloexec(stdin(), 3).map_err(io::Error::from),
    };
    let channel = channel.step("take the channel")?;
    let users = owner.map(|_| inherited::take(USERS_FD)).transpose().step("take the users")?;
    // Not /dev/null: the sandbox may have put anything in its place, and what is opened here is
    // opened with the powers of the host's root.
    let (nothing, end) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("make an empty input")?;
    drop(end);
    rustix::stdio::dup2_stdin(&nothing).step("detach standard input")?;
    let program = rustix::fs::open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .step("open this program")?;
    let filter = filter().step("make the filter of system calls")?;
    let isolator = Isolator { program, users, owner: owner.unwrap_or(0), filter };
    exec::join_new_session_keyring(&alone).step("leave the keys behind")?;
    confine::bound_powers(POWERS).step("give up capabilities")?;
    confine::drop_powers(POWERS).step("give up capabilities")?;
    set_no_new_privs(true).step("forbid new privileges")?;
    let own = Filter::for_isolators().step("make the filter of system calls")?;
    own.install(&alone).step("filter system calls")?;
    mount::leave_host_mounts(&alone).step("take a mount namespace of its own")?;
    view::make_stage()?;

    let mut uppers = Uppers::default();
    let mut sessions: Vec<Session> = Vec::new();
    loop {
        wait(&channel, &mut sessions).step("wait for a request")?;
        let (reply, pidfd) = match message::receive(&channel) {
            Ok(None) => return Ok(()),
            Ok(Some((Request::Open(open), fds))) => {
                match start(&alone, &isolator, &open, &mut uppers, sessions.len(), fds) {
                    Ok(session) => {
                        let pidfd = session.pidfd.try_clone().step("share a descriptor")?;
                        sessions.push(session);
                        (Reply::Opened, Some(pidfd))
                    }
                    Err(reply) => (reply, None),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => (Reply::Failed(Failure::new("understand the request", &error)), None),
        };
        let fds: Vec<_> = pidfd.iter().map(AsFd::as_fd).collect();
        message::send(&channel, &reply, &fds).step("send a reply")?;
    }
}

/// Waits for a request, and collects the sessions that end meanwhile.
fn wait(channel: &OwnedFd, sessions: &mut Vec<Session>) -> io::Result<()> {
    loop {
        let mut waiting = vec![PollFd::new(channel, PollFlags::IN)];
        waiting.extend(sessions.iter().map(|one| PollFd::new(&one.pidfd, PollFlags::IN)));
        match poll(&mut waiting, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = waiting.first().is_some_and(|channel| !channel.revents().is_empty());
        sessions.retain(|one| !matches!(waitpid(Some(one.pid), WaitOptions::NOHANG), Ok(Some(_))));
        if ready {
            return Ok(());
        }
    }
}

/// Whether the process behind a descriptor has ended.
pub(super) fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut waiting = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

fn start(
    alone: &SingleThread,
    isolator: &Isolator,
    open: &Open,
    uppers: &mut Uppers,
    running: usize,
    fds: Vec<OwnedFd>,
) -> Result<Session, Reply> {
    if running >= SESSIONS || open.places.len() > PLACES {
        let cause = io::Error::other("there are too many sessions or places");
        return Err(Reply::Refused(Failure::new("make another session", &cause)));
    }
    let handed = Handed::take(fds).map_err(Reply::Failed)?;
    let kept = uppers.of(open, &isolator.owner.to_string()).map_err(Reply::Refused)?;
    let (said, status) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .step("make a pipe")
        .map_err(Reply::Failed)?;
    let mut namespaces =
        UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    if open.network == super::Network::None {
        namespaces |= UnshareFlags::NEWNET;
    }
    match fork(alone, namespaces).step("make the namespaces").map_err(Reply::Failed)? {
        Fork::Child => {
            let Err(failure) = child::become_execd(alone, isolator, open, &kept, &handed);
            if let Ok(text) = serde_json::to_vec(&failure) {
                // If even that fails, the session's end says enough.
                rustix::io::write(&status, &text).ok();
            }
            exec::exit_now(1)
        }
        Fork::Parent { child, pidfd } => {
            drop((status, handed));
            let session = Session { pid: child, pidfd };
            let made = outcome(said);
            let cleared = view::clear_stage(|place| uppers.are_at(place)).map_err(Reply::Failed);
            let given = made.and(cleared).and_then(|()| {
                let noted = uppers.give(&kept, &session.pidfd).step("note who has a layer");
                noted.map_err(Reply::Failed)
            });
            if let Err(reply) = given {
                drop(osb_sys::process::kill(&session.pidfd));
                // It was killed, so this does not wait for long.
                waitpid(Some(session.pid), WaitOptions::empty()).ok();
                return Err(reply);
            }
            Ok(session)
        }
    }
}

/// What a new process said before it ended, or nothing if it became execd.
fn outcome(status: OwnedFd) -> Result<(), Reply> {
    let mut waiting = [PollFd::new(&status, PollFlags::IN)];
    let ready = poll(&mut waiting, Some(&Timespec { tv_sec: PATIENCE, tv_nsec: 0 }));
    if !ready.is_ok_and(|ready| ready > 0) {
        let cause = io::Error::from(io::ErrorKind::TimedOut);
        return Err(Reply::Failed(Failure::new("start the session", &cause)));
    }
    let mut said = Vec::new();
    let read = std::fs::File::from(status).take(64 * 1024).read_to_end(&mut said);
    read.step("hear from the session").map_err(Reply::Failed)?;
    if said.is_empty() {
        return Ok(());
    }
    let failure = serde_json::from_slice(&said).map_err(io::Error::from);
    Err(Reply::Refused(failure.step("hear from the session").unwrap_or_else(|failure| failure)))
}
