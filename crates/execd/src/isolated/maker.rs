//! execd's line to the isolator.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use osb_sys::{line::Line, message, spawn::Streams};
use rustix::thread::{CapabilitySet, capabilities};
use tokio::sync::{mpsc, oneshot};

use crate::{
    daemon::Daemon,
    error::ApiError,
    isolator::{Open, Reply, Request},
    program::{Launch, Program, nothing},
};

/// How many sessions may wait to be made.
const QUEUE: usize = 32;
/// How long one may take; it is a matter of milliseconds, on a very busy machine of seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who makes the sessions of this execd.
#[derive(Debug)]
pub(crate) enum Source {
    /// A process at the other end of this channel.
    Channel(OwnedFd),
    /// One that execd starts when it is first needed.
    Own,
    /// This execd is in a session itself.
    Nobody,
}

/// The way to the isolator, which is started when it is first needed.
#[derive(Debug)]
pub(super) struct Maker {
    way: Mutex<Way>,
}

#[derive(Debug)]
enum Way {
    Untried(Source),
    Open { jobs: mpsc::Sender<Job>, again: bool },
}

#[derive(Debug)]
struct Job {
    open: Open,
    fds: [OwnedFd; 2],
    answer: oneshot::Sender<Result<OwnedFd, ApiError>>,
}

impl Maker {
    pub(super) fn new(source: Source) -> Self {
        Self { way: Mutex::new(Way::Untried(source)) }
    }

    /// Why sessions cannot be made here, if they cannot.
    pub(super) fn unavailable(&self) -> Option<String> {
        let reason = match &*self.way.lock().unwrap_or_else(PoisonError::into_inner) {
            Way::Open { again: false, jobs } if jobs.is_closed() => "the isolator has ended",
            Way::Untried(Source::Channel(_)) | Way::Open { .. } => return None,
            Way::Untried(Source::Nobody) => "isolated sessions cannot be nested",
            Way::Untried(Source::Own) => {
                let can = capabilities(None).is_ok_and(|have| have.effective.contains(NEEDED));
                if can {
                    return None;
                }
                "execd lacks the capability CAP_SYS_ADMIN to make namespaces"
            }
        };
        Some(reason.to_owned())
    }

    /// Has a session made, and returns the descriptor of its first process. `fds` are those of
    /// [`Request::Open`].
    pub(super) async fn open(
        &self,
        daemon: &Arc<Daemon>,
        open: Open,
        fds: [OwnedFd; 2],
    ) -> Result<OwnedFd, ApiError> {
        if let Some(reason) = self.unavailable() {
            return Err(ApiError::unavailable(reason));
        }
        let jobs = self.jobs(daemon).map_err(|error| ApiError::runtime(&error))?;
        let (answer, made) = oneshot::channel();
        let gone = || ApiError::unavailable("the isolator has ended");
        jobs.send(Job { open, fds, answer }).await.map_err(|_| gone())?;
        made.await.map_err(|_| gone())?
    }

    fn jobs(&self, daemon: &Arc<Daemon>) -> io::Result<mpsc::Sender<Job>> {
        let mut way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        let again = match &*way {
            Way::Open { jobs, again } if !(*again && jobs.is_closed()) => return Ok(jobs.clone()),
            Way::Open { .. } | Way::Untried(Source::Own | Source::Nobody) => true,
            Way::Untried(Source::Channel(_)) => false,
        };
        let channel = match &*way {
            Way::Untried(Source::Channel(channel)) => channel.try_clone()?,
            Way::Untried(Source::Own | Source::Nobody) | Way::Open { .. } => start(daemon)?,
        };
        let (jobs, inbox) = mpsc::channel(QUEUE);
        let work = operate(Line::new(channel)?, inbox);
        daemon.tasks.spawn(daemon.ending.clone().run_until_cancelled_owned(work));
        *way = Way::Open { jobs: jobs.clone(), again };
        Ok(jobs)
    }
}

const NEEDED: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// Starts an isolator of our own.
fn start(daemon: &Arc<Daemon>) -> io::Result<OwnedFd> {
    let (ours, theirs) = message::channel()?;
    let launch = Launch {
        program: Program::Argv(vec!["/proc/self/exe".to_owned(), "--isolator".to_owned()]),
        cwd: PathBuf::from("/"),
        env: BTreeMap::new(),
        identity: None,
    };
    // It prints nothing.
    let nothing = nothing()?;
    let streams = Streams::Apart {
        input: theirs.as_fd(),
        output: nothing.as_fd(),
        errors: rustix::stdio::stderr(),
    };
    launch.start(&daemon.reaper, streams).map_err(io::Error::other)?;
    Ok(ours)
}

async fn operate(line: Line, mut inbox: mpsc::Receiver<Job>) {
    while let Some(Job { open, fds, answer }) = inbox.recv().await {
        // A caller that gave up has closed the session's channel, and with that the session ends.
        match tokio::time::timeout(PATIENCE, ask(&line, open, &fds)).await {
            Ok(Ok(made)) => drop(answer.send(made)),
            // Out of step with the isolator, so there is nothing more to hope for.
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

async fn ask(line: &Line, open: Open, fds: &[OwnedFd; 2]) -> io::Result<Result<OwnedFd, ApiError>> {
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    line.send(&Request::Open(open), &fds).await?;
    let ended = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (reply, fds) = line.receive().await?.ok_or_else(ended)?;
    Ok(match reply {
        Reply::Opened => Ok(fds.into_iter().next().ok_or_else(ended)?),
        Reply::Refused(failure) => Err(ApiError::invalid(failure.to_string())),
        Reply::Failed(failure) => Err(ApiError::runtime(&failure)),
    })
}
