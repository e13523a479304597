use std::{
    fmt, io,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use osb_api::execd::{PtyMode, PtySignal, PtyStatus};
use osb_sys::terminal::Size;
use rustix::process::{Signal, kill_process_group};
use tokio::{
    sync::{Mutex as Gate, Notify, mpsc, watch},
    task::spawn_blocking,
    time::timeout,
};
use uuid::Uuid;

use super::{
    history::History,
    process::{Channel, Process, Running, drive},
    request::Order,
};
use crate::{daemon::Daemon, family::Family, program::NotStarted};

/// How far an attached client may be behind before the program has to wait for it.
const WINDOW: u64 = 64 << 10;
/// How much is sent in one frame.
const FRAME: usize = 32 << 10;
/// How long the end of a killed program is awaited. What does not end then cannot be killed.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A shell that clients attach to and leave.
///
/// ```text
/// prepared ── attach ──▶ running ── its program ends ──▶ ended
///                           ▲                              │
///                           └─────────── attach ───────────┘
/// ```
///
/// It runs on while nobody is attached; at most one client is.
pub(crate) struct Terminal {
    pub(super) id: Uuid,
    order: Arc<Order>,
    state: Mutex<State>,
    /// Held while the program is started, so that nobody else starts another.
    starting: Gate<()>,
    /// Something has happened that an attached client may have to be told.
    news: watch::Sender<()>,
    /// The program or the client has come or gone.
    presence: watch::Sender<()>,
    /// The program may have to wait no longer.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    history: History,
    process: Option<Process>,
    /// How the last program ended.
    exit_code: i32,
    /// How often a program was started.
    runs: u64,
    holder: Option<Holder>,
    /// How often a client was let in.
    places: u64,
    removed: bool,
}

/// The client that is attached.
#[derive(Debug)]
struct Holder {
    number: u64,
    /// What it follows, once it is there.
    following: Option<Following>,
}

#[derive(Debug, Clone, Copy)]
struct Following {
    run: u64,
    /// The offset of what it is sent next.
    cursor: u64,
}

/// The place of the one client, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) terminal: Arc<Terminal>,
    number: u64,
}

/// What a client gets first.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) mode: PtyMode,
    /// Earlier output and the offset of its first byte.
    pub(super) replay: (u64, Vec<u8>),
}

/// Why a client gets nothing.
#[derive(Debug)]
pub(super) enum Refusal {
    TakenOver,
    Removed,
    Start(NotStarted),
}

/// What a client gets next.
#[derive(Debug)]
pub(super) enum Next {
    Output(Channel, Vec<u8>),
    Exit(i32),
    TakenOver,
    /// Nothing for now; [`Terminal::news`] tells when to look again.
    Nothing,
}

impl Terminal {
    pub(super) fn new(order: Order) -> Self {
        Self {
            id: Uuid::new_v4(),
            order: Arc::new(order),
            state: Mutex::default(),
            starting: Gate::default(),
            news: watch::Sender::default(),
            presence: watch::Sender::default(),
            room: Notify::new(),
        }
    }

    pub(super) fn status(&self) -> PtyStatus {
        let state = self.state();
        PtyStatus {
            session_id: self.id.to_string(),
            running: state.process.is_some(),
            output_offset: state.history.end(),
        }
    }

    /// Whether more runs than a shell that waits for its next line.
    pub(super) fn is_at_work(&self) -> bool {
        let is_more = |process: &Process| !self.order.is_shell() || process.foreground().is_some();
        self.state().process.as_ref().is_some_and(is_more)
    }

    pub(super) fn is_held(&self) -> bool {
        self.state().holder.is_some()
    }

    /// Takes the place of the one client, from another if need be.
    pub(super) fn take_place(self: &Arc<Self>) -> Place {
        let mut state = self.state();
        state.places += 1;
        let number = state.places;
        state.holder = Some(Holder { number, following: None });
        drop(state);
        self.changed();
        Place { terminal: Arc::clone(self), number }
    }

    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Keeps what the program printed.
    pub(super) fn append(&self, channel: Channel, bytes: &[u8]) {
        let mut state = self.state();
        state.history.append(channel, bytes);
        if state.following().is_none() {
            let end = state.history.end();
            state.history.forget_turns(end);
        }
        drop(state);
        self.news.send_replace(());
    }

    /// Waits until an attached client is not too far behind.
    pub(super) async fn room(&self) {
        while !self.state().has_room() {
            self.room.notified().await;
        }
    }

    /// Serves the program to its end. With execd it ends too: shells in terminals do so when they
    /// are hung up, and at nothing less.
    async fn run(&self, daemon: &Daemon, running: Running) {
        let mut driving = pin!(drive(self, running));
        let exit_code = tokio::select! {
            exit_code = &mut driving => exit_code,
            () = daemon.ending.cancelled() => {
                self.signal(daemon, PtySignal::SigHup);
                driving.await
            }
        };
        let mut state = self.state();
        state.process = None;
        state.exit_code = exit_code;
        drop(state);
        self.changed();
    }

    pub(super) fn resize(&self, size: Size) {
        if let Some(process) = &self.state().process {
            process.resize(size);
        }
    }

    /// Signals what runs in the foreground. What is to end the terminal goes to its shell too.
    pub(super) fn signal(&self, daemon: &Daemon, signal: PtySignal) {
        let (signal, ends_all) = match signal {
            PtySignal::SigInt => (Signal::INT, false),
            PtySignal::SigQuit => (Signal::QUIT, false),
            PtySignal::SigTerm => (Signal::TERM, false),
            PtySignal::SigHup => (Signal::HUP, true),
            PtySignal::SigKill => (Signal::KILL, true),
        };
        let state = self.state();
        let Some(process) = &state.process else { return };
        let foreground = process.foreground();
        if let Some(group) = foreground {
            // The only failure is that all of them have ended.
            let _ = kill_process_group(group, signal);
        }
        if foreground.is_none() || ends_all {
            daemon.reaper.signal_group(process.leader, signal);
        }
    }

    /// Ends the program and all that it has started in its terminal.
    pub(super) async fn remove(&self) {
        let Some(family) = self.close() else { return };
        family.kill().await;
        // What has not ended by then will not, and is no reason to keep the caller.
        let _ = timeout(END_WITHIN, self.until(|state| state.process.is_none())).await;
    }

    /// Lets nobody in any more; returns who has to be ended.
    fn close(&self) -> Option<Family> {
        let mut state = self.state();
        state.removed = true;
        let process = state.process.as_ref();
        let family = process.map(|process| Family::of(process.leader, process.exited.clone()));
        drop(state);
        self.changed();
        family
    }

    /// Resolves once nothing runs and nobody is attached, and has been so for this long; at once
    /// when the terminal was removed.
    pub(super) async fn idle_for(&self, long: Duration) {
        loop {
            self.until(State::is_idle).await;
            let woken = self.until(|state| state.removed || !state.is_idle());
            if timeout(long, woken).await.is_err() || self.state().removed {
                return;
            }
        }
    }

    /// Waits for the program or the client to come or go in this way.
    async fn until(&self, condition: fn(&State) -> bool) {
        let mut presence = self.presence.subscribe();
        while !condition(&self.state()) {
            // The only failure is that the sender is gone, which lives as long as this terminal.
            let _ = presence.changed().await;
        }
    }

    fn changed(&self) {
        self.news.send_replace(());
        self.presence.send_replace(());
        self.room.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn following(&self) -> Option<Following> {
        self.holder.as_ref().and_then(|holder| holder.following)
    }

    fn has_room(&self) -> bool {
        let behind = self.following().map(|following| self.history.end() - following.cursor);
        self.removed || behind.is_none_or(|behind| behind < WINDOW)
    }

    fn is_idle(&self) -> bool {
        self.process.is_none() && self.holder.is_none() || self.removed
    }
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Place {
    /// Starts the program unless it runs, and begins to follow its output at the end of what is
    /// replayed: nothing is missed in between and nothing comes twice.
    pub(super) async fn begin(
        &self,
        daemon: &Arc<Daemon>,
        since: u64,
        mode: PtyMode,
    ) -> Result<Beginning, Refusal> {
        let terminal = &self.terminal;
        let starting = terminal.starting.lock().await;
        let is_ready = {
            let state = terminal.state();
            self.check(&state)?;
            state.process.is_some()
        };
        if !is_ready {
            self.start(daemon, mode).await?;
        }
        drop(starting);
        let mut state = terminal.state();
        self.check(&state)?;
        let mode = state.process.as_ref().map_or(mode, |process| process.mode);
        let replay = state.history.since(since);
        let cursor = state.history.end();
        state.history.forget_turns(cursor);
        let following = Some(Following { run: state.runs, cursor });
        state.holder = Some(Holder { number: self.number, following });
        drop(state);
        terminal.changed();
        Ok(Beginning { mode, replay })
    }

    /// Whether the place is still this client's.
    fn check(&self, state: &State) -> Result<(), Refusal> {
        if state.removed {
            return Err(Refusal::Removed);
        }
        if state.holder.as_ref().is_none_or(|holder| holder.number != self.number) {
            return Err(Refusal::TakenOver);
        }
        Ok(())
    }

    async fn start(&self, daemon: &Arc<Daemon>, mode: PtyMode) -> Result<(), Refusal> {
        let (worker, order) = (Arc::clone(daemon), Arc::clone(&self.terminal.order));
        // Where the directory or the program lie may be far away, and slow.
        let started = spawn_blocking(move || Process::start(&worker, &order, mode)).await;
        let started = started.unwrap_or_else(|ended| Err(io::Error::from(ended).into()));
        let (process, running) = started.map_err(Refusal::Start)?;
        let removed = {
            let mut state = self.terminal.state();
            state.process = Some(process);
            state.runs += 1;
            state.removed
        };
        let (terminal, daemon) = (Arc::clone(&self.terminal), Arc::clone(daemon));
        daemon.tasks.clone().spawn(async move { terminal.run(&daemon, running).await });
        if removed {
            // Whoever removed it found nothing to end.
            self.terminal.remove().await;
        }
        Ok(())
    }

    /// What the client gets next. It counts as sent.
    pub(super) fn next(&self) -> Next {
        let mut state = self.terminal.state();
        let state = &mut *state;
        let held = state.holder.as_mut().filter(|holder| holder.number == self.number);
        let Some(Holder { following: Some(following), .. }) = held else { return Next::TakenOver };
        if let Some((channel, bytes)) = state.history.next(following.cursor, FRAME) {
            following.cursor += bytes.len() as u64;
            self.terminal.room.notify_one();
            return Next::Output(channel, bytes);
        }
        let ended = state.process.is_none() || state.runs != following.run;
        if ended { Next::Exit(state.exit_code) } else { Next::Nothing }
    }

    /// Where input goes, while the program runs.
    pub(super) fn input(&self) -> Option<mpsc::Sender<Bytes>> {
        self.terminal.state().process.as_ref().map(|process| process.input.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.terminal.state();
        if state.holder.as_ref().is_some_and(|holder| holder.number == self.number) {
            state.holder = None;
        }
        drop(state);
        self.terminal.changed();
    }
}
