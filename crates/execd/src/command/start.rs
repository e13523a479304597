use std::{
    future::pending,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use osb_api::execd::{Event, RunCommand};
use osb_sys::spawn::Streams;
use rustix::{
    io::ioctl_fionbio,
    pipe::{PipeFlags, pipe_with},
    process::Pid,
};
use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe::{Receiver, Sender},
    time::{Instant, sleep_until},
};

use super::{
    background::Background,
    foreground::Foreground,
    registry::{Asked, Command},
    request::{self, Order},
};
use crate::{
    blocking::blocking,
    daemon::Daemon,
    error::ApiError,
    events::{failure, now},
    family::Family,
    output::{Budget, Output},
    program::nothing,
    reaper::Exited,
    retained::Retained,
};

/// What became of a request, with the events to begin the answer with.
pub(super) enum Started {
    /// The program could not be executed; this is the whole answer.
    Not(Vec<u8>),
    Foreground(Foreground, Vec<u8>),
    /// This is the whole answer, however long it runs.
    Background(Background, Vec<u8>),
}

/// Starts what was asked for. It is known under its id before anybody hears of the id.
pub(super) async fn start(daemon: &Arc<Daemon>, asked: RunCommand) -> Result<Started, ApiError> {
    let worker = Arc::clone(daemon);
    // Where the directory or the program lie may be far away, and slow.
    match blocking(move || launch(&worker, asked)).await? {
        Launched::Not { asked, error } => {
            let command = daemon.commands.add_failed(asked, error.clone());
            let mut frames = first_frames(&command);
            Event::error(failure(error.clone(), error), now()).frame(&mut frames);
            Ok(Started::Not(frames))
        }
        Launched::Running(child) => {
            let pid = child.spawned.pid;
            child.attend(daemon).map_err(|error| {
                daemon.reaper.kill_group(pid);
                ApiError::runtime(&error)
            })
        }
    }
}

fn first_frames(command: &Command) -> Vec<u8> {
    let (mut frames, now) = (Vec::with_capacity(256), now());
    Event::init(&*command.id, now).frame(&mut frames);
    Event::ping(now).frame(&mut frames);
    frames
}

enum Launched {
    Not { asked: Asked, error: String },
    Running(Child),
}

/// A program that was started, with our ends of its pipes.
struct Child {
    asked: Asked,
    spawned: Spawned,
    began: Instant,
    timeout: Option<Duration>,
    output_limit: Option<u64>,
}

struct Spawned {
    pid: Pid,
    exited: Exited,
    output: OwnedFd,
    /// Where a background command writes both into one pipe, there is none.
    errors: Option<OwnedFd>,
    input: Option<(OwnedFd, String)>,
}

fn launch(daemon: &Daemon, asked: RunCommand) -> Result<Launched, ApiError> {
    let order = request::validate(daemon, asked)?;
    let asked = Asked::now(&order.launch.program);
    let (timeout, output_limit, began) = (order.timeout, order.output_limit, Instant::now());
    Ok(match spawn(daemon, order) {
        Err(error) => Launched::Not { asked, error },
        Ok(spawned) => Launched::Running(Child { asked, spawned, began, timeout, output_limit }),
    })
}

/// The error is for the client.
fn spawn(daemon: &Daemon, order: Order) -> Result<Spawned, String> {
    let say = |error: io::Error| error.to_string();
    let (output, for_output) = pipe(End::Reader).map_err(say)?;
    let (errors, for_errors) = if order.background {
        (None, None)
    } else {
        let (errors, for_errors) = pipe(End::Reader).map_err(say)?;
        (Some(errors), Some(for_errors))
    };
    let (for_input, input) = input(order.stdin).map_err(say)?;
    let streams = Streams::Apart {
        input: for_input.as_fd(),
        output: for_output.as_fd(),
        errors: for_errors.as_ref().unwrap_or(&for_output).as_fd(),
    };
    let started = order.launch.start(&daemon.reaper, streams);
    let (pid, exited) = started.map_err(|error| error.to_string())?;
    Ok(Spawned { pid, exited, output, errors, input })
}

/// Which end of a pipe is ours: it never makes us wait.
#[derive(Clone, Copy)]
enum End {
    Reader,
    Writer,
}

/// A pipe, our end first.
fn pipe(ours: End) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let (ours, theirs) = match ours {
        End::Reader => (reader, writer),
        End::Writer => (writer, reader),
    };
    ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// What a command reads from: nothing, or a pipe that its text is to be written to.
fn input(text: Option<String>) -> io::Result<(OwnedFd, Option<(OwnedFd, String)>)> {
    let Some(text) = text else { return Ok((nothing()?, None)) };
    let (writer, reader) = pipe(End::Writer)?;
    Ok((reader, Some((writer, text))))
}

impl Child {
    /// Makes the command known and takes its pipes into the event loop.
    fn attend(self, daemon: &Arc<Daemon>) -> io::Result<Started> {
        let Self { asked, spawned, began, timeout, output_limit } = self;
        let Spawned { pid, exited, output, errors, input } = spawned;
        if let Some((pipe, text)) = input {
            let pipe = Sender::from_owned_fd_unchecked(pipe)?;
            daemon.tasks.spawn(feed(pipe, text, exited.clone()));
        }
        let budget = output_limit.map(|limit| Arc::new(Budget::new(limit)));
        let at = timeout.map(|timeout| began + timeout);
        let deadline = Deadline { leader: pid, exited: exited.clone(), at };
        let Some(errors) = errors else {
            let pipe = Receiver::from_owned_fd_unchecked(output)?;
            let log = Arc::new(Retained::new(daemon.commands.settings.log_limit));
            let command = daemon.commands.add(asked, pid, exited.clone(), Some(Arc::clone(&log)));
            let mut frames = first_frames(&command);
            Event::complete(0, now()).frame(&mut frames);
            let daemon = Arc::clone(daemon);
            let background = Background { daemon, command, exited, pipe, log, budget, deadline };
            return Ok(Started::Background(background, frames));
        };
        let stdout = Receiver::from_owned_fd_unchecked(output)?;
        let stderr = Receiver::from_owned_fd_unchecked(errors)?;
        let command = daemon.commands.add(asked, pid, exited.clone(), None);
        let frames = first_frames(&command);
        let foreground = Foreground {
            daemon: Arc::clone(daemon),
            command,
            leader: pid,
            exited,
            stdout: Output::new(stdout, Event::stdout).within(budget.clone()),
            stderr: Output::new(stderr, Event::stderr).within(budget.clone()),
            budget,
            began,
            deadline,
        };
        Ok(Started::Foreground(foreground, frames))
    }
}

/// Writes the text for as long as somebody may read it.
async fn feed(mut pipe: Sender, text: String, exited: Exited) {
    tokio::select! {
        // A program that does not want all of it is free to.
        written = pipe.write_all(text.as_bytes()) => drop(written),
        _ = exited => {}
    }
}

/// When a command is killed.
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    leader: Pid,
    exited: Exited,
    at: Option<Instant>,
}

impl Deadline {
    /// Waits, kills the command, and never returns: the end of the command ends the waiting.
    pub(super) async fn enforce(self) {
        if let Some(at) = self.at {
            sleep_until(at).await;
            Family::of(self.leader, self.exited).kill().await;
        }
        pending::<()>().await;
    }
}
