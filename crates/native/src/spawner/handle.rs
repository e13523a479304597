//! The server's side of the spawner.

use std::{
    collections::VecDeque,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Stdio},
    time::Duration,
};

use osb_sys::{line::Line, message, outlets::Outlets, userns::IdBase};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::protocol::{Ended, Failure, Reply, Request, Spawn};

/// How many requests may wait for the spawner.
const QUEUE: usize = 256;

/// How long a reply may take; it is a matter of milliseconds, on a very busy machine of seconds.
const PATIENCE: Duration = Duration::from_secs(20);

type Answer = io::Result<(Reply, Vec<OwnedFd>)>;

/// A line to the spawner process, which is started when it is first needed, and again when it
/// has died.
#[derive(Debug, Clone)]
pub(crate) struct Spawner {
    jobs: mpsc::Sender<Job>,
}

#[derive(Debug)]
struct Job {
    request: Request,
    fds: Vec<OwnedFd>,
    answer: oneshot::Sender<Answer>,
}

/// A first process, just made.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    /// Where everything arrives that it sends, as far as they could be opened ahead.
    pub(crate) outlets: Option<Outlets>,
}

impl Spawner {
    /// `command` starts a process that runs [`super::spawner_main`].
    pub(crate) fn start(command: Vec<String>, tasks: &TaskTracker) -> Self {
        let (jobs, inbox) = mpsc::channel(QUEUE);
        tasks.spawn(operate(command, inbox));
        Self { jobs }
    }

    /// Has a sandbox made. `next` and `fds` are those of [`Request::Spawn`].
    pub(crate) async fn spawn(
        &self,
        spawn: Spawn,
        next: Vec<IdBase>,
        fds: Vec<OwnedFd>,
    ) -> io::Result<Spawned> {
        match self.ask(Request::Spawn { spawn, next }, fds).await? {
            (Reply::Spawned { pid }, fds) => {
                let mut fds = fds.into_iter();
                let pidfd = fds.next();
                let pidfd = pidfd.ok_or_else(|| io::Error::other("no descriptor came back"))?;
                let outlets = fds.collect::<Vec<_>>().try_into().ok().map(Outlets::from_fds);
                Ok(Spawned { pid, pidfd, outlets })
            }
            (Reply::Failed(failure), _) => Err(io::Error::other(failure)),
            (Reply::Reaped(_), _) => Err(out_of_step()),
        }
    }

    /// The exit status of a process that has ended, if this spawner made it.
    pub(crate) async fn reap(&self, pid: i32) -> io::Result<Option<Ended>> {
        match self.ask(Request::Reap { pid }, Vec::new()).await?.0 {
            Reply::Reaped(ended) => Ok(ended),
            Reply::Spawned { .. } | Reply::Failed(_) => Err(out_of_step()),
        }
    }

    async fn ask(&self, request: Request, fds: Vec<OwnedFd>) -> Answer {
        let (answer, asked) = oneshot::channel();
        self.jobs.send(Job { request, fds, answer }).await.map_err(|_| lost())?;
        tokio::time::timeout(PATIENCE, asked).await.map_err(|_| silent())?.map_err(|_| lost())?
    }
}

fn silent() -> io::Error {
    io::Error::other("the spawner process does not answer")
}

fn lost() -> io::Error {
    io::Error::other("the spawner process has ended")
}

fn out_of_step() -> io::Error {
    io::Error::other("the spawner answered another question")
}

/// A running spawner and those who wait for its replies, oldest first.
struct Running {
    line: Line,
    process: Child,
    waiting: VecDeque<oneshot::Sender<Answer>>,
}

async fn operate(command: Vec<String>, mut inbox: mpsc::Receiver<Job>) {
    let mut running: Option<Running> = None;
    loop {
        let job = match &mut running {
            None => inbox.recv().await,
            Some(open) => tokio::select! {
                job = inbox.recv() => job,
                reply = receive(&open.line) => {
                    match reply {
                        Ok(reply) => {
                            // A caller that gave up has dropped its end; the sandbox is then
                            // found and removed through its state directory.
                            if let Some(answer) = open.waiting.pop_front() {
                                drop(answer.send(Ok(reply)));
                            }
                        }
                        Err(error) => {
                            tracing::warn!(%error, "the spawner has ended; the next request starts another");
                            close(running.take()).await;
                        }
                    }
                    continue;
                }
            },
        };
        let Some(job) = job else { break };
        let open = match &mut running {
            Some(open) => open,
            None => match dial(&command) {
                Ok(fresh) => running.insert(fresh),
                Err(error) => {
                    drop(job.answer.send(Err(error)));
                    continue;
                }
            },
        };
        match send(&open.line, &job).await {
            Ok(()) => open.waiting.push_back(job.answer),
            Err(error) => drop(job.answer.send(Err(error))),
        }
    }
    close(running).await;
}

fn dial(command: &[String]) -> io::Result<Running> {
    let (ours, theirs) = message::channel()?;
    let (program, arguments) =
        command.split_first().ok_or_else(|| io::Error::other("no spawner is configured"))?;
    let process = osb_sys::command::command(program)
        .args(arguments)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        // Its own group, so that Ctrl-C in a terminal ends the server and not this.
        .process_group(0)
        .spawn()?;
    Ok(Running { line: Line::new(ours)?, process, waiting: VecDeque::new() })
}

/// Ends the spawner by closing its channel. Whoever still waits sees the line go dead.
async fn close(running: Option<Running>) {
    let Some(Running { line, mut process, waiting }) = running else { return };
    drop((line, waiting));
    // It ends at once, as a closed channel tells it to, unless the machine is very busy.
    let collected = tokio::task::spawn_blocking(move || process.wait()).await;
    if let Err(error) = collected.map_err(io::Error::from).flatten() {
        tracing::warn!(%error, "cannot collect the spawner");
    }
}

async fn send(line: &Line, job: &Job) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = job.fds.iter().map(AsFd::as_fd).collect();
    line.send(&job.request, &fds).await
}

async fn receive(line: &Line) -> Answer {
    line.receive().await?.ok_or_else(lost)
}

/// What a new process said before it ended, or nothing if it became execd.
pub(crate) async fn outcome(status: OwnedFd) -> io::Result<Result<(), Failure>> {
    use tokio::io::AsyncReadExt;
    let mut said = Vec::new();
    let pipe = tokio::net::unix::pipe::Receiver::from_owned_fd(status)?;
    let mut pipe = pipe.take(64 * 1024);
    let read = tokio::time::timeout(PATIENCE, pipe.read_to_end(&mut said)).await;
    read.map_err(|_| io::Error::other("the new process neither starts nor fails"))??;
    if said.is_empty() { Ok(Ok(())) } else { Ok(Err(serde_json::from_slice(&said)?)) }
}
