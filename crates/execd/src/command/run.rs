use std::{io, process::Stdio, sync::Arc, time::Duration};

use axum::body::{Body, Bytes};
use osb_api::execd::Event;
use rustix::process::Pid;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use uuid::Uuid;

use super::request::Order;
use crate::{
    daemon::Daemon,
    events::{self, failure, now, outcome},
    output::{Output, READ},
    reaper::Exited,
};

/// Starts the command and returns its events. Once the body is dropped, the command is killed.
pub(super) fn start(daemon: &Arc<Daemon>, order: Order) -> Body {
    let (client, body) = events::channel();
    let began = Instant::now();
    let mut first = Vec::new();
    Event::init(Uuid::new_v4().simple().to_string(), now()).frame(&mut first);
    Event::ping(now()).frame(&mut first);
    let timeout = order.timeout;
    let running = Running::spawn(daemon, order);
    if let Err(error) = &running {
        Event::error(failure(error.to_string(), error.to_string()), now()).frame(&mut first);
    }
    client.try_send(Bytes::from(first)).expect("invariant: a new channel has room");
    if let Ok(running) = running {
        daemon.tasks.spawn(running.follow(client, began, timeout));
    }
    body
}

/// A command in its process group, which does not outlive this value while its leader runs.
struct Running {
    daemon: Arc<Daemon>,
    leader: Pid,
    exited: Exited,
    stdout: Output,
    stderr: Output,
}

/// The client went away.
struct Gone;

impl Running {
    fn spawn(daemon: &Arc<Daemon>, order: Order) -> io::Result<Self> {
        let mut command = order.launch.command()?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = daemon.reaper.spawn(&mut command)?;
        let stdout = Output::new(started.stdout, Event::stdout);
        let stderr = Output::new(started.stderr, Event::stderr);
        let (Ok(stdout), Ok(stderr)) = (stdout, stderr) else {
            daemon.reaper.kill_group(started.pid);
            return Err(io::Error::from(io::ErrorKind::BrokenPipe));
        };
        Ok(Self {
            daemon: Arc::clone(daemon),
            leader: started.pid,
            exited: started.exited,
            stdout,
            stderr,
        })
    }

    /// Sends events until the command has ended or the client has gone.
    async fn follow(
        mut self,
        client: mpsc::Sender<Bytes>,
        began: Instant,
        timeout: Option<Duration>,
    ) {
        let (daemon, leader) = (Arc::clone(&self.daemon), self.leader);
        // Beside the sending: a client that does not read must not extend the time.
        let deadline = async {
            if let Some(timeout) = timeout {
                sleep(timeout.saturating_sub(began.elapsed())).await;
                daemon.reaper.kill_group(leader);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = self.send(&client, began) => {}
            () = client.closed() => {}
            () = deadline => {}
        }
    }

    async fn send(&mut self, client: &mpsc::Sender<Bytes>, began: Instant) -> Result<(), Gone> {
        let mut buffer = vec![0; READ];
        let mut ping = events::pings(began);
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
        outcome(exit, began).frame(&mut frames);
        client.send(Bytes::from(frames)).await.map_err(|_| Gone)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.daemon.reaper.kill_group(self.leader);
    }
}
