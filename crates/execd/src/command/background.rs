use std::{
    io,
    sync::{Arc, Weak},
};

use tokio::net::unix::pipe::Receiver;

use super::{registry::Command, start::Deadline};
use crate::{
    daemon::Daemon,
    output::{Budget, Pace, READ},
    reaper::Exited,
    retained::Retained,
};

/// A command that nobody waits for. Its output is kept.
pub(super) struct Background {
    pub(super) daemon: Arc<Daemon>,
    pub(super) command: Arc<Command>,
    pub(super) exited: Exited,
    pub(super) pipe: Receiver,
    pub(super) log: Arc<Retained>,
    pub(super) budget: Option<Arc<Budget>>,
    pub(super) deadline: Deadline,
}

impl Background {
    /// Keeps what the command prints, until nobody is left who could print.
    pub(super) async fn follow(self) {
        let Self { daemon, command, mut exited, pipe, log, budget, deadline } = self;
        let mut copier = Copier { pipe: Some(pipe), log: Arc::downgrade(&log), budget };
        // What is being written to the log is not to be dropped half-way, so all of this is one.
        let copying = async {
            loop {
                tokio::select! {
                    _ = &mut exited => break,
                    () = copier.readable() => {
                        copier.copy_once().await;
                    }
                }
            }
            copier.copy_waiting().await;
        };
        tokio::select! {
            () = copying => {}
            () = deadline.enforce() => {}
        }
        daemon.commands.settle(&command);
        // From here on the log is kept for as long as the command is remembered.
        drop((command, log));
        if let Ok(_room) = daemon.commands.leftovers.try_acquire() {
            let copying = async {
                while copier.pipe.is_some() {
                    copier.readable().await;
                    let length = copier.copy_once().await;
                    Pace::Leisurely.rest(length == READ).await;
                }
            };
            tokio::select! {
                () = copying => {}
                () = daemon.ending.cancelled() => {}
            }
        }
    }
}

/// Moves output from a pipe into a log.
struct Copier {
    /// Gone once all writers have closed it.
    pipe: Option<Receiver>,
    /// Gone once nobody can ask for it any more.
    log: Weak<Retained>,
    budget: Option<Arc<Budget>>,
}

impl Copier {
    /// Resolves when there is something to read; never once the pipe is closed.
    async fn readable(&self) {
        match &self.pipe {
            // The only failure is that the event loop ends, and with it this program.
            Some(pipe) => drop(pipe.readable().await),
            None => std::future::pending().await,
        }
    }

    /// Reads what is there, once, and returns how much that was.
    async fn copy_once(&mut self) -> usize {
        let Some(pipe) = &self.pipe else { return 0 };
        let mut buffer = Vec::with_capacity(READ);
        match pipe.try_read_buf(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Ok(0) | Err(_) => {
                self.pipe = None;
                0
            }
            Ok(length) => {
                self.keep(buffer).await;
                length
            }
        }
    }

    /// Only what is in the pipe now: processes that are left may write for ever.
    async fn copy_waiting(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        let waiting = rustix::io::ioctl_fionread(pipe).unwrap_or(0);
        let mut waiting = usize::try_from(waiting).unwrap_or(0);
        while waiting > 0
            && let Some(pipe) = &self.pipe
        {
            let mut buffer = vec![0; waiting.min(READ)];
            // Not by asking the event loop, which may not have heard of it yet.
            let Ok(length @ 1..) = rustix::io::read(pipe, &mut *buffer) else { return };
            buffer.truncate(length);
            waiting -= length;
            self.keep(buffer).await;
        }
    }

    async fn keep(&self, mut bytes: Vec<u8>) {
        let Some(log) = self.log.upgrade() else { return };
        if let Some(budget) = &self.budget {
            let admitted = budget.admit(&bytes).len();
            bytes.truncate(admitted);
            let notice = budget.notice().map(|notice| format!("\n{notice}\n"));
            bytes.extend_from_slice(notice.unwrap_or_default().as_bytes());
        }
        drop(log.write(bytes).await);
    }
}
