//! The program of a terminal: started, fed and read.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, Bytes};
use osb_api::execd::{PtyMode, channels};
use osb_sys::{
    ready,
    spawn::Streams,
    terminal::{self, Size},
};
use rustix::{io::Errno, process::Pid};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::unix::pipe,
    sync::mpsc,
    time::{Instant, timeout_at},
};

use super::{request::Order, session::Terminal};
use crate::{daemon::Daemon, program::NotStarted, reaper::Exited};

/// How much is read at once.
const READ: usize = 16 << 10;
/// How many pieces of input wait for the program; more wait in the client's connection.
const INPUT: usize = 16;
/// How long others who hold the terminal are listened to after the program itself has ended.
const LINGER: Duration = Duration::from_millis(250);
/// More than pipes and terminals hold, so that all that the program said is within it.
const LEFT: usize = 2 << 20;

/// Where output comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Stdout,
    Stderr,
}

impl Channel {
    /// The byte that says so to clients.
    pub(super) fn byte(self) -> u8 {
        match self {
            Self::Stdout => channels::STDOUT,
            Self::Stderr => channels::STDERR,
        }
    }
}

/// A program that runs.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) leader: Pid,
    pub(super) exited: Exited,
    pub(super) mode: PtyMode,
    pub(super) input: mpsc::Sender<Bytes>,
    /// Our end of its terminal, if it has one.
    controller: Option<Arc<AsyncFd<OwnedFd>>>,
}

/// What [`drive`] needs of a program that was started.
#[derive(Debug)]
pub(super) struct Running {
    ends: Ends,
    input: mpsc::Receiver<Bytes>,
    exited: Exited,
}

impl Process {
    /// This waits for the program to be read, so it is for a thread that may wait.
    pub(super) fn start(
        daemon: &Daemon,
        order: &Order,
        mode: PtyMode,
    ) -> Result<(Self, Running), NotStarted> {
        let (leader, exited, ends) = match mode {
            PtyMode::Pty => in_terminal(daemon, order)?,
            PtyMode::Pipe => on_pipes(daemon, order)?,
        };
        let controller = match &ends {
            Ends::Terminal(controller) => Some(Arc::clone(controller)),
            Ends::Pipes(_) => None,
        };
        let (sender, input) = mpsc::channel(INPUT);
        let process = Self { leader, exited: exited.clone(), mode, input: sender, controller };
        Ok((process, Running { ends, input, exited }))
    }

    pub(super) fn resize(&self, size: Size) {
        if let Some(controller) = &self.controller {
            // The only failure is that the program has just ended.
            drop(terminal::resize(controller, size));
        }
    }

    /// The process group that the terminal talks to, if that is not the program's own.
    pub(super) fn foreground(&self) -> Option<Pid> {
        let group = terminal::foreground(self.controller.as_ref()?).ok()?;
        (group != self.leader).then_some(group)
    }
}

fn in_terminal(daemon: &Daemon, order: &Order) -> Result<(Pid, Exited, Ends), NotStarted> {
    let identity = order.identity(daemon);
    let terminal::Terminal { controller, program } = terminal::open(order.size, identity.as_ref())?;
    let controller = ready::register(controller, Interest::READABLE | Interest::WRITABLE)?;
    let streams = Streams::Terminal(program.as_fd());
    let (leader, exited) = order.start(daemon, identity.as_ref(), streams)?;
    Ok((leader, exited, Ends::Terminal(Arc::new(controller))))
}

fn on_pipes(daemon: &Daemon, order: &Order) -> Result<(Pid, Exited, Ends), NotStarted> {
    let (stdin, our_stdin) = io::pipe()?;
    let (our_stdout, stdout) = io::pipe()?;
    let (our_stderr, stderr) = io::pipe()?;
    let pipes = Pipes {
        stdin: pipe::Sender::from_owned_fd(our_stdin.into())?,
        stdout: Some(pipe::Receiver::from_owned_fd(our_stdout.into())?),
        stderr: Some(pipe::Receiver::from_owned_fd(our_stderr.into())?),
    };
    let streams =
        Streams::Apart { input: stdin.as_fd(), output: stdout.as_fd(), errors: stderr.as_fd() };
    let (leader, exited) = order.start(daemon, order.identity(daemon).as_ref(), streams)?;
    Ok((leader, exited, Ends::Pipes(pipes)))
}

/// Our ends of what the program reads and writes.
#[derive(Debug)]
enum Ends {
    Terminal(Arc<AsyncFd<OwnedFd>>),
    Pipes(Pipes),
}

#[derive(Debug)]
struct Pipes {
    stdin: pipe::Sender,
    /// Gone once all writers have closed it.
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
}

/// Carries output and input until the program has ended; returns its exit code once all that it
/// printed is in the terminal's history.
pub(super) async fn drive(terminal: &Terminal, running: Running) -> i32 {
    let Running { ends, input, mut exited } = running;
    let (mut output, writer) = ends.split();
    let mut buffer = vec![0; READ];
    let exit = {
        let mut writing = std::pin::pin!(write(writer, input));
        let mut wrote = false;
        loop {
            // Room first, then reading: the rest waits in the kernel, and the program with it.
            let read = async {
                terminal.room().await;
                output.read(&mut buffer).await
            };
            tokio::select! {
                exit = &mut exited => break exit,
                () = &mut writing, if !wrote => wrote = true,
                read = read => match read {
                    Some((channel, length)) => {
                        terminal.append(channel, buffer.get(..length).unwrap_or_default());
                    }
                    None => output = Output::Ended,
                },
            }
        }
    };
    let until = Instant::now() + LINGER;
    while Instant::now() < until && !matches!(output, Output::Ended) {
        terminal.room().await;
        match timeout_at(until, output.read(&mut buffer)).await {
            Ok(Some((channel, length))) => {
                terminal.append(channel, buffer.get(..length).unwrap_or_default());
            }
            Ok(None) => return i32::from(exit.code()),
            Err(_) => break,
        }
    }
    // Somebody else holds on to the terminal, or the client is slow. What the program itself has
    // said is all here to be read.
    let mut left = LEFT;
    while left > 0 {
        terminal.room().await;
        let Some((channel, length)) = output.read_now(&mut buffer) else { break };
        terminal.append(channel, buffer.get(..length).unwrap_or_default());
        left = left.saturating_sub(length);
    }
    i32::from(exit.code())
}

impl Ends {
    fn split(self) -> (Output, Writer) {
        match self {
            Self::Terminal(controller) => {
                (Output::Terminal(Arc::clone(&controller)), Writer::Terminal(controller))
            }
            Self::Pipes(Pipes { stdin, stdout, stderr }) => {
                (Output::Pipes { stdout, stderr }, Writer::Pipe(stdin))
            }
        }
    }
}

#[derive(Debug)]
enum Output {
    Terminal(Arc<AsyncFd<OwnedFd>>),
    Pipes {
        stdout: Option<pipe::Receiver>,
        stderr: Option<pipe::Receiver>,
    },
    /// The end was reached while the program runs on; now only its exit is awaited.
    Ended,
}

impl Output {
    /// Waits for output; nothing is the end of it.
    async fn read(&mut self, buffer: &mut [u8]) -> Option<(Channel, usize)> {
        match self {
            Self::Terminal(controller) => {
                let read = controller
                    .async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut *buffer)?))
                    .await;
                // An error is how the kernel says that nobody has the terminal open any more.
                read.ok().filter(|length| *length > 0).map(|length| (Channel::Stdout, length))
            }
            Self::Pipes { stdout, stderr } => loop {
                if stdout.is_none() && stderr.is_none() {
                    return None;
                }
                let (pipe, channel) = tokio::select! {
                    () = readable(stdout.as_ref()) => (&mut *stdout, Channel::Stdout),
                    () = readable(stderr.as_ref()) => (&mut *stderr, Channel::Stderr),
                };
                match pipe.as_ref().map(|pipe| pipe.try_read(buffer)) {
                    Some(Ok(length @ 1..)) => return Some((channel, length)),
                    Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => *pipe = None,
                }
            },
            Self::Ended => std::future::pending().await,
        }
    }

    /// Reads what is there, without asking the event loop, which may not have heard of it yet.
    fn read_now(&self, buffer: &mut [u8]) -> Option<(Channel, usize)> {
        let some = |read: Result<usize, Errno>| read.ok().filter(|length| *length > 0);
        match self {
            Self::Terminal(controller) => {
                some(rustix::io::read(controller, buffer)).map(|length| (Channel::Stdout, length))
            }
            Self::Pipes { stdout, stderr } => {
                let from = |pipe: &Option<pipe::Receiver>, buffer: &mut [u8]| {
                    pipe.as_ref().and_then(|pipe| some(rustix::io::read(pipe, buffer)))
                };
                let first = from(stdout, buffer).map(|length| (Channel::Stdout, length));
                first.or_else(|| from(stderr, buffer).map(|length| (Channel::Stderr, length)))
            }
            Self::Ended => None,
        }
    }
}

async fn readable(pipe: Option<&pipe::Receiver>) {
    match pipe {
        // The only failure is that the event loop ends, and with it this program.
        Some(pipe) => drop(pipe.readable().await),
        None => std::future::pending().await,
    }
}

#[derive(Debug)]
enum Writer {
    Terminal(Arc<AsyncFd<OwnedFd>>),
    Pipe(pipe::Sender),
}

/// Gives the program its input. Once it takes none, `input` is closed and clients learn of it.
async fn write(writer: Writer, mut input: mpsc::Receiver<Bytes>) {
    while let Some(mut bytes) = input.recv().await {
        while bytes.has_remaining() {
            match writer.write(&bytes).await {
                Ok(length @ 1..) => bytes.advance(length),
                Ok(0) | Err(_) => return,
            }
        }
    }
}

impl Writer {
    async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Terminal(controller) => {
                let write = |fd: &OwnedFd| Ok(rustix::io::write(fd, bytes)?);
                controller.async_io(Interest::WRITABLE, write).await
            }
            Self::Pipe(pipe) => loop {
                pipe.writable().await?;
                match pipe.try_write(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => return written,
                }
            },
        }
    }
}
