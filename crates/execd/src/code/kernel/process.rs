use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use rustix::process::{Pid, Signal};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    channels::{Channels, Heard, Seen},
    connection::Connection,
    spec::{Interrupt, Spec},
};
use crate::{
    daemon::Daemon,
    driven::{Birth, Driven, Tongue},
    output::Pace,
    program::NotStarted,
    reaper::Exit,
};

/// How long a kernel that has ended may be listened to: what it said before is on its way.
const ECHO: Duration = Duration::from_secs(1);

/// How long a kernel that nobody has a cell for may take until it answers.
const OPENING: Duration = Duration::from_hours(1);

/// One process of a kernel, which ends with this value, and the way to speak with it.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) driven: Driven<Mute>,
    line: Line,
    /// It has executed a cell, so there is something to lose.
    pub(super) knows: bool,
    /// When nothing more is expected of one that has ended.
    silent_at: Option<Instant>,
    _connection: Connection,
}

#[derive(Debug)]
enum Line {
    Opening(Opening),
    Open(Box<Channels>),
    Failed,
}

/// The task that opens the line. It goes on while nobody waits for it, and ends with this value.
#[derive(Debug)]
struct Opening(JoinHandle<io::Result<Channels>>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why a kernel cannot be spoken with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unready {
    Ended(Exit),
    Silent,
}

/// A process that does not speak on its standard input.
#[derive(Debug, Default)]
pub(super) struct Mute;

impl Tongue for Mute {
    type Said = ();

    fn feed(&mut self, _: &[u8], _: impl FnMut(())) {}
}

impl Process {
    pub(super) fn start(
        daemon: &Arc<Daemon>,
        spec: &Spec,
        birth: &Birth,
        patience: Duration,
        version: &Arc<OnceLock<String>>,
    ) -> Result<Self, NotStarted> {
        let connection = Connection::make(daemon, birth)?;
        let mut driven = Driven::start(daemon, spec.command(&connection.file())?, birth.clone())?;
        driven.be_verbatim();
        driven.remember_errors();
        driven.hang_up();
        let (key, version) = (connection.key.clone(), Arc::clone(version));
        let opening = Channels::open(connection.ports, key, patience, version);
        let line = Line::Opening(Opening(daemon.tasks.spawn(opening)));
        Ok(Self { driven, line, knows: false, silent_at: None, _connection: connection })
    }

    pub(super) fn pid(&self) -> Pid {
        self.driven.pid
    }

    /// Waits until it answers. What it prints meanwhile is for nobody.
    pub(super) async fn open(&mut self, deadline: Instant) -> Result<(), Unready> {
        loop {
            if let Some(exit) = self.driven.exit {
                return Err(Unready::Ended(exit));
            }
            let opening = match &mut self.line {
                Line::Opening(opening) => opening,
                Line::Open(_) => return Ok(()),
                Line::Failed => return Err(Unready::Silent),
            };
            tokio::select! {
                opened = &mut opening.0 => {
                    let opened = opened.map_err(io::Error::from).flatten();
                    self.line = opened.map_or(Line::Failed, |open| Line::Open(Box::new(open)));
                    // Kernels of Python pass on what their children print, and print it as well.
                    self.driven.drop_echo();
                }
                full = self.driven.happening(None) => Pace::Leisurely.rest(full).await,
                () = sleep_until(deadline) => return Err(Unready::Silent),
            }
        }
    }

    /// Takes care of itself between cells. An error says that it is of no use any more.
    pub(super) async fn idle(&mut self) -> Result<(), ()> {
        if self.driven.exit.is_some() {
            return Err(());
        }
        match &mut self.line {
            Line::Opening(_) => self.open(Instant::now() + OPENING).await.map_err(drop),
            Line::Failed => Err(()),
            Line::Open(channels) => {
                let full = tokio::select! {
                    full = self.driven.happening(None) => full,
                    // Whoever speaks for ever is to be listened to, but not in haste.
                    heard = channels.hear() => heard.map(|_| true).map_err(drop)?,
                };
                Pace::Leisurely.rest(full).await;
                Ok(())
            }
        }
    }

    /// Sends a cell, and returns the id of the request.
    pub(super) fn execute(&mut self, code: &str) -> io::Result<String> {
        self.knows = true;
        self.channels()?.execute(code, Seen::ByClient)
    }

    /// Asks whether it takes cells, and returns the id of the request.
    pub(super) fn ask(&mut self) -> io::Result<String> {
        self.channels()?.ask()
    }

    fn channels(&mut self) -> io::Result<&mut Channels> {
        match &mut self.line {
            Line::Open(channels) => Ok(channels),
            Line::Opening(_) | Line::Failed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends code of which nobody hears and nothing is remembered, and returns the id of the request.
    pub(super) fn execute_unseen(&mut self, code: &str) -> io::Result<String> {
        self.channels()?.execute(code, Seen::ByNobody)
    }

    /// Interrupts the cell, and returns the id of the request if it is one.
    pub(super) fn interrupt(&mut self, how: Interrupt) -> io::Result<Option<String>> {
        match (how, &mut self.line) {
            (Interrupt::Message, Line::Open(channels)) => channels.interrupt().map(Some),
            (Interrupt::Signal | Interrupt::Message, _) => {
                self.driven.signal_group(Signal::INT);
                Ok(None)
            }
        }
    }

    /// Waits until it says something, or prints something, which becomes events in `frames`. Fails
    /// once it says nothing any more.
    pub(super) async fn listen(&mut self, frames: &mut Vec<u8>) -> io::Result<Option<Heard>> {
        let Line::Open(channels) = &mut self.line else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if self.driven.exit.is_some() {
            let silent_at = *self.silent_at.get_or_insert_with(|| Instant::now() + ECHO);
            return timeout_at(silent_at, channels.hear()).await?.map(Some);
        }
        tokio::select! {
            heard = channels.hear() => heard.map(Some),
            _ = self.driven.happening(Some(frames)) => Ok(None),
        }
    }
}
