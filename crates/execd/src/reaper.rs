use std::{
    collections::HashMap,
    future::Future,
    io,
    pin::Pin,
    process::{ChildStderr, ChildStdout, Command},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};
use tokio::sync::oneshot;

/// Waits for all children, those that were started here and those that orphans left behind.
///
/// Nothing else in this program waits: as the first process of a sandbox it must take whatever
/// ends, so two waiters would steal from each other. A child is started and noted under one lock,
/// so it cannot be reaped before it is known, and signals are sent under it, so a number that
/// belongs to another process by now is never signalled.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    running: Mutex<HashMap<Pid, oneshot::Sender<Exit>>>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// The exit code by which shells tell it.
    pub(crate) fn code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        };
        u8::try_from(code & 0xff).unwrap_or(u8::MAX)
    }
}

/// A child that was started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: Pid,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
    pub(crate) exited: Exited,
}

/// Resolves when the child has ended.
#[derive(Debug)]
pub(crate) struct Exited(oneshot::Receiver<Exit>);

impl Future for Exited {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Exit> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|exit| exit.expect("invariant: a child's sender is dropped by sending only"))
    }
}

impl Reaper {
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Started> {
        let mut running = self.running();
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let (sender, receiver) = oneshot::channel();
        running.insert(pid, sender);
        Ok(Started {
            pid,
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            exited: Exited(receiver),
        })
    }

    /// Takes all children that have ended.
    pub(crate) fn reap(&self) {
        let mut running = self.running();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let Some(exit) = exit(status) else { continue };
            if let Some(sender) = running.remove(&pid) {
                // Whoever started it may have lost interest.
                let _ = sender.send(exit);
            }
        }
    }

    /// Signals a child and all of its process group, unless the child has ended.
    pub(crate) fn signal_group(&self, leader: Pid, signal: Signal) {
        if self.running().contains_key(&leader) {
            // The only failure is that all of them have ended.
            let _ = kill_process_group(leader, signal);
        }
    }

    /// Signals all that was started here and has not ended.
    pub(crate) fn signal_all(&self, signal: Signal) {
        for leader in self.running().keys() {
            // The only failure is that all of them have ended.
            let _ = kill_process_group(*leader, signal);
        }
    }

    /// Kills a child and all of its process group, unless the child has ended.
    pub(crate) fn kill_group(&self, leader: Pid) {
        self.signal_group(leader, Signal::KILL);
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Pid, oneshot::Sender<Exit>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn exit(status: WaitStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}
