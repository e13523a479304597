//! One session, from here: a process, a channel, and what is known about it.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use osb_api::{
    execd::{CreateIsolated, IsolatedListed, IsolatedSession, IsolatedStatus},
    headers,
};
use osb_core::{Clock, SystemClock, Token, agent::Boot};
use osb_sys::{line::Line, process, ready};
use tokio::{
    io::Interest,
    sync::Notify,
    time::{Instant, sleep_until},
};
use uuid::Uuid;

use super::run;
use crate::{daemon::Daemon, error::ApiError};

/// The most runs in the background that one session may have had.
const RUNS: usize = 256;

/// How long the processes of a session may take to be gone after they were killed.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Session {
    pub(super) id: Uuid,
    pub(super) created_at: Timestamp,
    pub(super) request: CreateIsolated,
    /// Where runs begin.
    pub(super) workdir: String,
    token: Token,
    idle: Option<Duration>,
    /// Connections to its execd go this way.
    line: Line,
    process: OwnedFd,
    state: Mutex<State>,
    /// Something about [`State`] has changed that its end may depend on.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    status: IsolatedStatus,
    last_run_at: Timestamp,
    /// Since when nobody has used it.
    idle_since: Instant,
    /// How many requests are being answered.
    busy: usize,
    /// The shell that its runs share; without one, as where there is no bash, each has its own.
    shell: Option<String>,
    /// Runs in the background that have not been seen to end.
    runs: Vec<Uuid>,
}

/// A request that is being answered; the session is not idle meanwhile.
#[derive(Debug)]
pub(super) struct Busy(Arc<Session>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.busy -= 1;
        state.idle_since = Instant::now();
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Session {
    /// Takes over a session that was just made.
    pub(super) async fn start(
        daemon: &Arc<Daemon>,
        request: CreateIsolated,
        boot: &Boot,
        idle: Option<Duration>,
        channel: OwnedFd,
        process: OwnedFd,
    ) -> Result<Arc<Self>, ApiError> {
        let now = SystemClock.now();
        let line = Line::new(channel).map_err(|error| ApiError::runtime(&error))?;
        let state = State {
            status: IsolatedStatus::Active,
            last_run_at: now,
            idle_since: Instant::now(),
            busy: 0,
            shell: None,
            runs: Vec::new(),
        };
        let session = Arc::new(Self {
            id: Uuid::new_v4(),
            created_at: now,
            request,
            workdir: boot.workdir.clone(),
            token: boot.token.clone(),
            idle,
            line,
            process,
            state: Mutex::new(state),
            changed: Notify::new(),
        });
        // Also the proof that its execd answers.
        let shell = run::shell(&session, daemon).await?;
        session.state().shell = shell;
        Ok(session)
    }

    pub(super) fn is_active(&self) -> bool {
        self.state().status == IsolatedStatus::Active
    }

    /// How much runs in it, as its own execd says.
    pub(crate) async fn running(&self, daemon: &Arc<Daemon>) -> usize {
        run::running(self, daemon).await.unwrap_or_default()
    }

    pub(super) fn describe(&self) -> IsolatedSession {
        let state = self.state();
        IsolatedSession {
            status: state.status,
            created_at: self.created_at,
            last_run_at: state.last_run_at,
            idle_remaining_seconds: self.remaining(&state),
            request: self.request.clone(),
        }
    }

    pub(super) fn summarize(&self) -> IsolatedListed {
        let state = self.state();
        IsolatedListed {
            session_id: self.id,
            status: state.status,
            created_at: self.created_at,
            last_run_at: state.last_run_at,
            idle_remaining_seconds: self.remaining(&state),
        }
    }

    fn remaining(&self, state: &State) -> Option<u64> {
        let idle = self.idle.filter(|_| state.status == IsolatedStatus::Active)?;
        let used = if state.busy > 0 { Duration::ZERO } else { state.idle_since.elapsed() };
        Some(idle.saturating_sub(used).as_secs())
    }

    /// Marks the beginning of a request, which must not be for a session that has ended.
    pub(super) fn use_now(self: &Arc<Self>) -> Result<Busy, ApiError> {
        let mut state = self.state();
        if state.status != IsolatedStatus::Active {
            return Err(ApiError::isolated_ended(self.id));
        }
        state.busy += 1;
        drop(state);
        Ok(Busy(Arc::clone(self)))
    }

    pub(super) fn shell(&self) -> Option<String> {
        self.state().shell.clone()
    }

    /// Marks the beginning of a run.
    pub(super) fn begin_run(&self) {
        self.state().last_run_at = SystemClock.now();
    }

    /// Remembers a run in the background, as long as it may still be running.
    pub(super) fn remember(&self, run: Uuid) {
        let mut state = self.state();
        if state.runs.len() >= RUNS {
            state.runs.remove(0);
        }
        state.runs.push(run);
    }

    /// Asks the session's execd.
    pub(super) async fn ask(
        &self,
        daemon: &Arc<Daemon>,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, ApiError> {
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_static("isolated"));
        let mut token = HeaderValue::from_str(self.token.reveal())
            .map_err(|error| ApiError::runtime(&error))?;
        token.set_sensitive(true);
        headers.insert(headers::EXECD_TOKEN, token);
        let stream = self.connect().await.map_err(|_| ApiError::isolated_ended(self.id))?;
        let broken = |_| ApiError::isolated_ended(self.id);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        daemon.tasks.spawn(async move {
            // What breaks is seen by whoever reads the answer.
            drop(connection.await);
        });
        sender.send_request(request).await.map_err(broken)
    }

    async fn connect(&self) -> io::Result<tokio::net::UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        self.line.send(&(), &[theirs.as_fd()]).await?;
        ours.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(ours)
    }

    /// Ends the session, unless it has ended already.
    pub(super) fn end(&self, status: IsolatedStatus) {
        let mut state = self.state();
        if state.status == IsolatedStatus::Active {
            state.status = status;
            // Its first process takes all others with it. The only failure is that it has ended.
            drop(process::kill(&self.process));
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Resolves when the session's processes are gone, or when that takes too long.
    pub(super) async fn gone(&self) {
        let process =
            self.process.try_clone().and_then(|fd| ready::register(fd, Interest::READABLE));
        if let Ok(process) = process {
            // It was killed: waiting longer would not help anybody.
            drop(tokio::time::timeout(PATIENCE, process.readable()).await);
        }
    }

    /// Follows the session to its end, which comes by itself or when it was idle for too long.
    pub(super) async fn watch(self: Arc<Self>, daemon: Arc<Daemon>) {
        let process =
            self.process.try_clone().and_then(|fd| ready::register(fd, Interest::READABLE));
        let Ok(process) = process else { return self.end(IsolatedStatus::Dead) };
        while self.is_active() {
            let idle_at = self.idle_at();
            tokio::select! {
                _ = process.readable() => return self.end(IsolatedStatus::Dead),
                () = self.changed.notified() => {}
                () = until(idle_at) => self.retire(&daemon).await,
                () = daemon.ending.cancelled() => self.end(IsolatedStatus::Destroyed),
            }
        }
    }

    /// When the session will have been idle for too long, if nothing happens until then.
    fn idle_at(&self) -> Option<Instant> {
        let state = self.state();
        let idle = self.idle.filter(|_| state.busy == 0)?;
        state.idle_since.checked_add(idle)
    }

    /// Ends the session for having been idle, unless something runs in the background.
    async fn retire(self: &Arc<Self>, daemon: &Arc<Daemon>) {
        let runs = self.state().runs.clone();
        let mut running = Vec::new();
        for id in runs {
            if run::is_running(self, daemon, id).await {
                running.push(id);
            }
        }
        let mut state = self.state();
        // One may have begun while we asked.
        if state.busy > 0 || self.idle.is_none_or(|idle| state.idle_since.elapsed() < idle) {
            return;
        }
        if running.is_empty() {
            drop(state);
            self.end(IsolatedStatus::Destroyed);
        } else {
            state.runs = running;
            state.idle_since = Instant::now();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The only failure is that it has ended.
        drop(process::kill(&self.process));
    }
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
