use std::{pin::pin, sync::Arc};

use axum::body::Bytes;
use osb_api::execd::Event;
use rustix::process::Pid;
use tokio::{sync::mpsc, time::Instant};

use super::{registry::Command, settings::OnDisconnect, start::Deadline};
use crate::{
    daemon::Daemon,
    events::{self, now, outcome},
    family::Family,
    output::{Budget, Output, Pace, READ},
    reaper::Exited,
};

/// A command whose output goes to a client as it comes.
pub(super) struct Foreground {
    pub(super) daemon: Arc<Daemon>,
    pub(super) command: Arc<Command>,
    pub(super) leader: Pid,
    pub(super) exited: Exited,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    pub(super) budget: Option<Arc<Budget>>,
    pub(super) began: Instant,
    pub(super) deadline: Deadline,
}

/// The client went away.
struct Gone;

impl Foreground {
    /// Sends events until the command has ended. A client that leaves before takes the command
    /// with it, unless execd was told otherwise.
    pub(super) async fn follow(mut self, client: mpsc::Sender<Bytes>) {
        // Beside the sending: a client that does not read must not extend the time.
        let mut deadline = pin!(self.deadline.clone().enforce());
        let sent = tokio::select! {
            sent = self.send(&client) => sent,
            () = client.closed() => Err(Gone),
            () = &mut deadline => Err(Gone),
        };
        drop(client);
        if sent.is_err() && self.exited.ended().is_none() {
            tokio::select! {
                () = self.run_on() => {}
                () = &mut deadline => {}
            }
        }
        let daemon = Arc::clone(&self.daemon);
        daemon.commands.settle(&self.command);
        // Processes that it left behind may write for ever, and none of them is to be harmed.
        if let Ok(_room) = daemon.commands.leftovers.try_acquire() {
            tokio::select! {
                () = self.discard(Pace::Leisurely) => {}
                () = daemon.ending.cancelled() => {}
            }
        }
    }

    async fn discard(&mut self, pace: Pace) {
        futures_util::future::join(self.stdout.discard(pace), self.stderr.discard(pace)).await;
    }

    async fn send(&mut self, client: &mpsc::Sender<Bytes>) -> Result<(), Gone> {
        let mut buffer = vec![0; READ];
        let mut ping = events::pings(self.began);
        let exit = loop {
            // Room first, then reading: the rest waits in the pipe, and the command with it.
            let room = client.reserve().await.map_err(|_| Gone)?;
            let mut frames = Vec::new();
            tokio::select! {
                exit = &mut self.exited => break exit,
                () = self.stdout.readable() => {}
                () = self.stderr.readable() => {}
                _ = ping.tick() => Event::ping(now()).frame(&mut frames),
            }
            self.stdout.read(&mut buffer, now(), &mut frames);
            self.stderr.read(&mut buffer, now(), &mut frames);
            self.tell_of_the_budget(&mut frames);
            if !frames.is_empty() {
                room.send(Bytes::from(frames));
            }
        };
        let mut frames = Vec::new();
        // Only what is in the pipes now: a process left in the background may write for ever.
        for output in [&mut self.stdout, &mut self.stderr] {
            let mut waiting = output.waiting();
            while waiting > 0 {
                let length = output.drain(&mut buffer, waiting, now(), &mut frames);
                if length == 0 {
                    break;
                }
                waiting -= length;
                if frames.len() >= READ {
                    let chunk = Bytes::from(std::mem::take(&mut frames));
                    client.send(chunk).await.map_err(|_| Gone)?;
                }
            }
            output.finish(now(), &mut frames);
        }
        self.tell_of_the_budget(&mut frames);
        outcome(exit, self.began).frame(&mut frames);
        client.send(Bytes::from(frames)).await.map_err(|_| Gone)
    }

    /// Goes on without a client, until the command has ended.
    async fn run_on(&mut self) {
        let daemon = Arc::clone(&self.daemon);
        let mut exited = self.exited.clone();
        let family = Family::of(self.leader, exited.clone());
        let ending = async {
            if daemon.commands.settings.on_disconnect == OnDisconnect::End {
                family.interrupt().await;
            }
        };
        let reading = async {
            tokio::select! {
                () = self.discard(Pace::Full) => {}
                _ = &mut exited => {}
            }
            exited.await
        };
        futures_util::future::join(ending, reading).await;
    }

    fn tell_of_the_budget(&mut self, frames: &mut Vec<u8>) {
        let notice = self.budget.as_ref().and_then(|budget| budget.notice());
        if let Some(notice) = notice {
            self.stdout.finish(now(), frames);
            self.stderr.finish(now(), frames);
            Event::stderr(notice, now()).frame(frames);
        }
    }
}
