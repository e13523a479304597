//! A process that execd drives: it hears on a socket what to do, and tells there what it has done.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    ffi::OsString,
    io,
    os::{fd::AsFd, unix::net::UnixStream as StdStream},
    path::PathBuf,
    sync::Arc,
};

use osb_api::execd::Event;
use osb_sys::spawn::Streams;
use rustix::process::{Pid, Signal};
use tokio::{
    io::Interest,
    net::{UnixStream, unix::pipe::Receiver},
    task::coop::consume_budget,
};

use crate::{
    daemon::Daemon,
    events::now,
    family::{Child, Family},
    output::{Budget, Output, READ},
    program::{Launch, NotStarted, Program},
    reaper::{Exit, Exited, Reaper},
};

/// The most that waits for a process before it is not listened to: whoever does not hear is not to
/// ask for more.
const UNHEARD: usize = 64 << 10;

/// How a process tells something on its socket.
pub(crate) trait Tongue: Default {
    type Said;

    /// Cuts what arrives into what it means. Whatever arrives, it holds a bounded part of it.
    fn feed(&mut self, bytes: &[u8], emit: impl FnMut(Self::Said));
}

/// One process, which ends with this value. The socket is its standard input.
#[derive(Debug)]
pub(crate) struct Driven<T: Tongue> {
    reaper: Arc<Reaper>,
    pub(crate) pid: Pid,
    exited: Exited,
    /// How it ended, once it has.
    pub(crate) exit: Option<Exit>,
    /// Gone once the process has closed it.
    control: Option<UnixStream>,
    tongue: T,
    /// Whether it has ever told something, so that it is more than started.
    pub(crate) has_spoken: bool,
    /// What it has told and nobody has looked at.
    pub(crate) told: VecDeque<T::Said>,
    /// What it has not taken yet of what it was told.
    outgoing: Vec<u8>,
    stdout: Output,
    stderr: Output,
}

/// Where and with what a process begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Birth {
    pub(crate) cwd: PathBuf,
    pub(crate) env: BTreeMap<OsString, OsString>,
}

impl<T: Tongue> Driven<T> {
    /// This waits for the program to be read, so it is for a thread that may wait.
    pub(crate) fn start(
        daemon: &Arc<Daemon>,
        argv: Vec<String>,
        birth: Birth,
    ) -> Result<Self, NotStarted> {
        let Birth { cwd, env } = birth;
        let identity = daemon.environment.identity(None);
        let launch = Launch { program: Program::Argv(argv), cwd, env, identity };
        let (here, there) = StdStream::pair()?;
        here.set_nonblocking(true)?;
        let control = UnixStream::from_std(here)?;
        let ((our_stdout, stdout), (our_stderr, stderr)) = (io::pipe()?, io::pipe()?);
        let our_stdout = Receiver::from_owned_fd(our_stdout.into())?;
        let our_stderr = Receiver::from_owned_fd(our_stderr.into())?;
        let streams =
            Streams::Apart { input: there.as_fd(), output: stdout.as_fd(), errors: stderr.as_fd() };
        let (pid, exited) = launch.start(&daemon.reaper, streams)?;
        Ok(Self {
            reaper: Arc::clone(&daemon.reaper),
            pid,
            exited,
            exit: None,
            control: Some(control),
            tongue: T::default(),
            has_spoken: false,
            told: VecDeque::new(),
            outgoing: Vec::new(),
            stdout: Output::new(our_stdout, Event::stdout),
            stderr: Output::new(our_stderr, Event::stderr),
        })
    }

    /// Lets its output become events as it comes, not line by line.
    pub(crate) fn be_verbatim(&mut self) {
        self.stdout.be_verbatim();
        self.stderr.be_verbatim();
    }

    /// Speaks with it no more: its standard input is at its end.
    pub(crate) fn hang_up(&mut self) {
        self.control = None;
    }

    /// Drops what it only repeats on its outputs.
    pub(crate) fn drop_echo(&mut self) {
        self.stdout.drop_echo(self.pid, 1);
        self.stderr.drop_echo(self.pid, 2);
    }

    /// Remembers the last that it prints on its standard error.
    pub(crate) fn remember_errors(&mut self) {
        self.stderr.remember();
    }

    /// The last lines that it has printed there.
    pub(crate) fn last_errors(&self) -> String {
        self.stderr.remembered()
    }

    /// Tells it something.
    pub(crate) fn say(&mut self, message: &[u8]) {
        self.outgoing.extend_from_slice(message);
        self.write();
    }

    /// Whether it has taken all that it was told.
    pub(crate) fn has_all(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Waits until it says, prints or takes something, or ends, and notes that. Its output becomes
    /// events in `frames`, or nothing without them; then it returns whether there may be more.
    /// Nothing is lost if nobody waits any more.
    pub(crate) async fn happening(&mut self, frames: Option<&mut Vec<u8>>) -> bool {
        // Pipes are always ready if their writers never stop, and nothing else would have a turn.
        consume_budget().await;
        if self.exit.is_some() || !self.told.is_empty() {
            return false;
        }
        let interest = match self.outgoing.len() {
            0 => Interest::READABLE,
            1..UNHEARD => Interest::READABLE | Interest::WRITABLE,
            _ => Interest::WRITABLE,
        };
        tokio::select! {
            exit = &mut self.exited => self.exit = Some(exit),
            () = self.stdout.readable() => {}
            () = self.stderr.readable() => {}
            () = ready(self.control.as_ref(), interest) => {}
        }
        let (mut buffer, mut full) = (vec![0; READ], false);
        if let Some(frames) = frames {
            self.stdout.read(&mut buffer, now(), frames);
            self.stderr.read(&mut buffer, now(), frames);
        } else {
            full = self.stdout.skip() | self.stderr.skip();
        }
        self.write();
        self.listen(&mut buffer);
        full
    }

    /// Appends events of what waits in the pipes now: background jobs may write for ever. False
    /// says that there is more, for when the frames are full.
    pub(crate) fn drain(
        &mut self,
        left: &mut Option<[u64; 2]>,
        frames: &mut Vec<u8>,
        most: usize,
    ) -> bool {
        let [out, err] = left.get_or_insert_with(|| [self.stdout.waiting(), self.stderr.waiting()]);
        let mut buffer = vec![0; READ];
        for (output, left) in [(&mut self.stdout, out), (&mut self.stderr, err)] {
            while *left > 0 {
                if frames.len() >= most {
                    return false;
                }
                match output.drain(&mut buffer, *left, now(), frames) {
                    0 => *left = 0,
                    length => *left = left.saturating_sub(length),
                }
            }
        }
        self.finish(frames);
        true
    }

    /// Appends events of the lines that have no end.
    pub(crate) fn finish(&mut self, frames: &mut Vec<u8>) {
        self.stdout.finish(now(), frames);
        self.stderr.finish(now(), frames);
    }

    /// Drops its output beyond a budget.
    pub(crate) fn be_within(&mut self, budget: &Arc<Budget>) {
        self.stdout.be_within(budget);
        self.stderr.be_within(budget);
    }

    /// Signals it and all of its process group.
    pub(crate) fn signal_group(&self, signal: Signal) {
        self.reaper.signal_group(self.pid, signal);
    }

    /// Signals the process alone.
    pub(crate) fn signal(&self, signal: Signal) {
        self.reaper.signal(self.pid, signal);
    }

    /// Whether it has ended, even if nobody has been told yet.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.reaper.reap();
        self.exit = self.exit.or_else(|| self.exited.ended().map(|ended| ended.exit));
        self.exit.is_some()
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) {
        if self.exit.is_none() {
            self.exit = Some((&mut self.exited).await);
        }
    }

    /// It, and all that comes from it.
    pub(crate) fn family(&self) -> Family {
        Family::of(self.pid, self.exited.clone())
    }

    /// What it has started since it had only these children.
    pub(crate) fn offspring(&self, spared: HashSet<Child>) -> Family {
        Family::below(self.pid, self.exited.clone(), spared)
    }

    fn write(&mut self) {
        while let Some(control) = &self.control
            && !self.outgoing.is_empty()
        {
            match control.try_write(&self.outgoing) {
                Ok(length) => drop(self.outgoing.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.control = None,
            }
        }
    }

    fn listen(&mut self, buffer: &mut [u8]) {
        let Some(control) = self.control.as_ref().filter(|_| self.outgoing.len() < UNHEARD) else {
            return;
        };
        match control.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // It has become another program, or does not want to speak any more.
            Ok(0) | Err(_) => self.control = None,
            Ok(length) => {
                self.has_spoken = true;
                let told = &mut self.told;
                let heard = buffer.get(..length).unwrap_or_default();
                self.tongue.feed(heard, |said| told.push_back(said));
            }
        }
    }
}

impl<T: Tongue> Drop for Driven<T> {
    fn drop(&mut self) {
        self.reaper.kill_group(self.pid);
    }
}

async fn ready(control: Option<&UnixStream>, interest: Interest) {
    match control {
        // The only failure is that the event loop ends, and with it this program.
        Some(control) => drop(control.ready(interest).await),
        None => std::future::pending().await,
    }
}
