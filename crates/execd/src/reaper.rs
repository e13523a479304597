use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicI32},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt, future::Shared};
use jiff::Timestamp;
use osb_core::{Clock, SystemClock};
use osb_sys::spawn::{self, Program, SpawnError, Streams};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, kill_process_group,
    wait, waitid,
};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep},
};

/// How long a child may take to become its program. Disks are slow at times, and a program of the
/// sandbox can hold up whoever opens a file that it has a lease on.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often to look after those that have not become their program.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for all children, those that were started here and those that orphans left behind.
///
/// Nothing else in this program waits: as the first process of a sandbox it must take whatever
/// ends, so two waiters would steal from each other. A child is noted before it can be reaped, and
/// signals are sent under the lock under which it is reaped, so a number that belongs to another
/// process by now is never signalled.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    children: Mutex<Children>,
    /// A child is being started.
    begun: Notify,
}

#[derive(Debug, Default)]
struct Children {
    running: HashMap<Pid, oneshot::Sender<Ended>>,
    starting: Vec<Starting>,
    /// Those that are not yet more expendable than this process.
    precious: Vec<(Pid, Instant)>,
}

/// A child that another thread is starting. The kernel stores its number as soon as there is one.
#[derive(Debug)]
struct Starting {
    pid: Arc<AtomicI32>,
    sender: oneshot::Sender<Ended>,
    since: Instant,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

/// How and when a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) at: Timestamp,
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

/// Resolves when the child has ended, for everybody who holds a copy.
#[derive(Debug, Clone)]
pub(crate) struct Exited {
    shared: Shared<oneshot::Receiver<Ended>>,
    /// Set once `shared` has resolved here, which then must not be asked again.
    ended: Option<Ended>,
}

impl Exited {
    fn channel() -> (oneshot::Sender<Ended>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self { shared: receiver.shared(), ended: None })
    }

    /// How and when it ended, if it has.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended.or_else(|| self.shared.clone().now_or_never()?.ok())
    }
}

impl Future for Exited {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Exit> {
        if let Some(ended) = self.ended {
            return Poll::Ready(ended.exit);
        }
        self.shared.poll_unpin(context).map(|ended| {
            let ended = ended.expect("invariant: a child's sender is dropped by sending only");
            self.ended = Some(ended);
            ended.exit
        })
    }
}

impl Reaper {
    /// Starts a program as the leader of a session. This waits for the program to be read, so it
    /// is for a thread that may wait.
    pub(crate) fn start(
        &self,
        program: &Program,
        streams: Streams<'_>,
    ) -> Result<(Pid, Exited), SpawnError> {
        let (sender, exited) = Exited::channel();
        let pid = Arc::new(AtomicI32::new(0));
        let starting = Starting { pid: Arc::clone(&pid), sender, since: Instant::now() };
        self.children().starting.push(starting);
        self.begun.notify_one();
        let started = spawn::spawn(program, streams, &pid);
        let mut children = self.children();
        let at = children.starting.iter().position(|starting| Arc::ptr_eq(&starting.pid, &pid));
        let starting = at.map(|at| children.starting.swap_remove(at));
        if let (Ok(pid), Some(starting)) = (&started, starting) {
            children.running.insert(*pid, starting.sender);
            if !spawn::make_expendable(*pid) {
                children.precious.push((*pid, Instant::now()));
            }
        }
        Ok((started?, exited))
    }

    /// Kills children that do not become their programs, for ever: until they have, a thread of ours
    /// waits for them, and every program of the sandbox can stop them.
    pub(crate) async fn keep_starts_moving<Never>(&self) -> Never {
        loop {
            self.begun.notified().await;
            loop {
                sleep(LOOK).await;
                if !self.look_after_starts() {
                    break;
                }
            }
        }
    }

    /// Returns whether there is still something to look after.
    fn look_after_starts(&self) -> bool {
        let mut children = self.children();
        for starting in &children.starting {
            let Some(pid) = spawn::stored(&starting.pid) else { continue };
            if starting.since.elapsed() >= PATIENCE || is_stopped(pid) {
                // The only failure is that it has ended and waits to be reaped.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let Children { running, starting, precious } = &mut *children;
        precious.retain(|(pid, since)| {
            // A program can close its files again.
            let is_worth_it = running.contains_key(pid) && since.elapsed() < PATIENCE;
            is_worth_it && !spawn::make_expendable(*pid)
        });
        !starting.is_empty() || !precious.is_empty()
    }

    /// Takes all children that have ended.
    pub(crate) fn reap(&self) {
        let mut children = self.children();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let Some(exit) = exit(status) else { continue };
            if let Some(sender) = children.take(pid) {
                // Whoever started it may have lost interest.
                let _ = sender.send(Ended { exit, at: SystemClock.now() });
            }
        }
    }

    /// Signals a child alone, unless it has ended.
    pub(crate) fn signal(&self, pid: Pid, signal: Signal) {
        if self.children().running.contains_key(&pid) {
            // The only failure is that it has ended and waits to be reaped.
            let _ = kill_process(pid, signal);
        }
    }

    /// Signals a child and all of its process group, unless the child has ended.
    pub(crate) fn signal_group(&self, leader: Pid, signal: Signal) {
        if self.children().running.contains_key(&leader) {
            // The only failure is that all of them have ended.
            let _ = kill_process_group(leader, signal);
        }
    }

    /// Signals all that was started here and has not ended.
    pub(crate) fn signal_all(&self, signal: Signal) {
        for leader in self.children().running.keys() {
            // The only failure is that all of them have ended.
            let _ = kill_process_group(*leader, signal);
        }
    }

    /// Kills a child and all of its process group, unless the child has ended.
    pub(crate) fn kill_group(&self, leader: Pid) {
        self.signal_group(leader, Signal::KILL);
    }

    fn children(&self) -> MutexGuard<'_, Children> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Children {
    fn take(&mut self, pid: Pid) -> Option<oneshot::Sender<Ended>> {
        self.running.remove(&pid).or_else(|| {
            let is_it = |starting: &Starting| spawn::stored(&starting.pid) == Some(pid);
            let at = self.starting.iter().position(is_it)?;
            Some(self.starting.swap_remove(at).sender)
        })
    }
}

/// Whether a child of ours is stopped. It stays to be waited for.
fn is_stopped(pid: Pid) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_)))
}

fn exit(status: WaitStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}
