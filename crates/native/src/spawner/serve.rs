//! The spawner's own side: a loop of request and reply.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::ExitCode,
};

use osb_sys::{
    exec,
    fork::{self, Fork, SingleThread, fork},
    message,
    outlets::Outlets,
    rootless::Rights,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, WaitOptions, waitpid},
    thread::UnshareFlags,
};

use super::{
    ahead::Ahead,
    bounds::Bounds,
    child::{self, Handed, Means},
    protocol::{Ended, Failure, Reply, Request, Spawn, Step},
    stage::Stage,
    volumes,
};

/// How long nobody must have asked for anything before namespaces are made ahead: a sandbox that was
/// just begun still needs the processors.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 4_000_000 };

/// Runs the spawner on the channel that is its standard input, until the server is gone.
///
/// To be called first thing in a process of its own, before it has any other thread.
pub fn spawner_main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %error, "the spawner cannot go on");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Failure> {
    let alone = SingleThread::prove().step("be alone in the process")?;
    osb_sys::mount::leave_host_mounts(&alone).step("take a mount namespace of its own")?;
    let rights = Rights::current().step("learn its rights")?;
    if rights == Rights::User {
        // It makes others and comes back, which it could not to the host's own.
        fork::unshare(&alone, UnshareFlags::NEWNET).step("leave the host's network")?;
    }
    let stage = Stage::build(&alone, rights)?;
    let means = Means { rights, bounds: Bounds::assume()?, stage };
    let mut ahead = Ahead::new(rights);
    let channel = rustix::stdio::stdin();
    loop {
        if !ahead.is_complete() && !is_asked(channel).step("wait for a request")? {
            ahead.make_one(&alone);
            continue;
        }
        let Some((request, fds)) = message::receive(channel).step("receive a request")? else {
            return Ok(());
        };
        match request {
            Request::Spawn { spawn, next } => {
                let started = start(&alone, &spawn, &means, fds, &mut ahead);
                ahead.expect(next);
                match started {
                    Ok(Started { pid, pidfd, outlets }) => {
                        let outlets = outlets.map(Outlets::into_fds).into_iter().flatten();
                        let fds: Vec<_> = std::iter::once(pidfd).chain(outlets).collect();
                        reply(&Reply::Spawned { pid: pid.as_raw_pid() }, &fds)
                    }
                    Err(failure) => reply(&Reply::Failed(failure), &[]),
                }
            }
            Request::Reap { pid } => reply(&Reply::Reaped(reap(pid)), &[]),
        }
        .step("send a reply")?;
    }
}

/// Whether a request comes within a moment.
fn is_asked(channel: BorrowedFd<'_>) -> io::Result<bool> {
    let mut waiting = [PollFd::new(&channel, PollFlags::IN)];
    match poll(&mut waiting, Some(&QUIET)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn reply(reply: &Reply, fds: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    message::send(rustix::stdio::stdin(), reply, &fds)
}

/// A sandbox that was begun.
struct Started {
    pid: Pid,
    pidfd: OwnedFd,
    outlets: Option<Outlets>,
}

fn start(
    alone: &SingleThread,
    spawn: &Spawn,
    means: &Means,
    fds: Vec<OwnedFd>,
    ahead: &mut Ahead,
) -> Result<Started, Failure> {
    let handed = Handed::take(fds, spawn)?;
    let others = ahead.take(alone, spawn)?;
    let maps = volumes::id_maps(alone, &spawn.root.volumes, spawn.base)?;
    let namespaces = UnshareFlags::NEWPID | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    match fork(alone, namespaces).step("make the namespaces")? {
        Fork::Parent { child: pid, pidfd } => {
            Ok(Started { pid, pidfd, outlets: others.network.outlets })
        }
        Fork::Child => {
            let Err(failure) = child::become_execd(alone, spawn, &handed, &others, &maps, means);
            handed.report(&failure);
            exec::exit_now(1)
        }
    }
}

fn reap(pid: i32) -> Option<Ended> {
    let (_, status) = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG).ok()??;
    let code = status.exit_status().map(Ended::Code);
    code.or_else(|| status.terminating_signal().map(Ended::Signal))
}
