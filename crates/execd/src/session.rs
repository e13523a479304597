//! Shells that remember: one bash for each session, which runs one text after the other.
//!
//! Every session has a task (`queue`) that takes its runs in order. It drives a bash (`shell`)
//! that evaluates one text after the other (`driver.bash`), and after each tells its status and
//! all of its state (`report`, `state`). When a run ends the shell, the next one takes over the
//! last state (`host`): with `exit` or by an error in the same process, after `exec` or a kill in
//! a new one.

mod driver;
mod host;
mod queue;
mod report;
mod shell;
mod state;
mod statement;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    response::Response,
    routing::{delete, post},
};
use osb_api::execd::{CreateSession, Event, RunInSession, SessionCreated};
use osb_sys::fs;
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinHandle,
};
use uuid::Uuid;

use crate::{
    blocking::blocking,
    command::OnDisconnect,
    daemon::Daemon,
    error::ApiError,
    events::{self, now},
    reply, request as body,
};
use host::{Host, Text};
use queue::{Message, Order};
use shell::Birth;

/// The most sessions at a time; each is a process.
const SESSIONS: usize = 256;

/// The most runs of one session that wait or run.
const RUNS: usize = 32;

/// The most memory for the states of all sessions, in KiB.
const STATES: usize = 64 << 10;

pub(crate) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route("/session", post(create))
        .route("/session/{id}", delete(remove))
        .route("/session/{id}/run", post(run))
}

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<String, Session>>,
    states: Arc<Semaphore>,
}

#[derive(Debug)]
struct Session {
    /// Once this is dropped, the task ends.
    mailbox: mpsc::UnboundedSender<Message>,
    places: Arc<Semaphore>,
    task: JoinHandle<()>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { all: Mutex::default(), states: Arc::new(Semaphore::new(STATES)) }
    }
}

impl Sessions {
    /// Ends the run in progress of a session. Returns whether there was one, once it has ended, or
    /// nothing if there is no such session.
    pub(crate) async fn interrupt(&self, id: &str) -> Option<bool> {
        let (answer, interrupted) = oneshot::channel();
        self.all().get(id)?.mailbox.send(Message::Interrupt(answer)).ok()?;
        Some(interrupted.await.unwrap_or(false))
    }

    fn check_room(&self) -> Result<(), ApiError> {
        if self.all().len() < SESSIONS {
            return Ok(());
        }
        Err(ApiError::refused(format!(
            "there are {SESSIONS} sessions: delete one before you create another"
        )))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `POST /session`.
async fn create(State(daemon): State<Arc<Daemon>>, content: Body) -> Result<Response, ApiError> {
    let asked: Option<Option<CreateSession>> = body::optional_json(content).await?;
    let asked = asked.flatten().and_then(|asked| asked.cwd).filter(|cwd| !cwd.is_empty());
    daemon.sessions.check_room()?;
    let worker = Arc::clone(&daemon);
    let host = blocking(move || begin(&worker, asked)).await?;
    daemon.sessions.check_room()?;
    let (mailbox, messages) = mpsc::unbounded_channel();
    let goes_on = daemon.commands.settings.on_disconnect != OnDisconnect::End;
    let task = daemon.tasks.spawn(queue::serve(host, messages, goes_on));
    let session = Session { mailbox, places: Arc::new(Semaphore::new(RUNS)), task };
    let session_id = Uuid::new_v4().to_string();
    daemon.sessions.all().insert(session_id.clone(), session);
    Ok(reply::json(&SessionCreated { session_id }))
}

/// Starts the shell of a session. This looks at files, so it is for a thread that may wait.
fn begin(daemon: &Arc<Daemon>, cwd: Option<String>) -> Result<Host, ApiError> {
    let env = daemon.environment.for_command(&BTreeMap::new());
    let cwd = match cwd {
        None => daemon.environment.workdir().to_owned(),
        Some(given) if given.contains('\0') => {
            return Err(ApiError::invalid("`cwd` is not a path"));
        }
        Some(given) => {
            let cwd = daemon.environment.path_with(&given, &env);
            fs::create_dir_all(&cwd).map_err(|error| ApiError::runtime(&error))?;
            cwd
        }
    };
    let birth = Birth { cwd, env };
    Host::start(daemon, birth, Arc::clone(&daemon.sessions.states)).map_err(|error| {
        ApiError::refused(format!("cannot start bash, which a session needs: {error}"))
    })
}

/// `POST /session/{id}/run`.
async fn run(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
    content: Body,
) -> Result<Response, ApiError> {
    let RunInSession { command, cwd, timeout } = body::json(content).await?;
    if command.is_empty() {
        return Err(ApiError::invalid("`command` is empty"));
    }
    if command.contains('\0') {
        return Err(ApiError::invalid("a command cannot contain the character NUL"));
    }
    let timeout = u64::try_from(timeout.unwrap_or(0))
        .map_err(|_| ApiError::invalid("`timeout` is negative"))?;
    let worker = Arc::clone(&daemon);
    let text = blocking(move || {
        let env = worker.environment.for_command(&BTreeMap::new());
        let cwd = cwd.filter(|cwd| !cwd.is_empty()).map(|given| {
            let cwd = worker.environment.path_with(&given, &env);
            let is_there = !given.contains('\0') && cwd.is_dir();
            let refusal = || ApiError::invalid(format!("`cwd` {given:?} is not a directory"));
            is_there.then_some(cwd).ok_or_else(refusal)
        });
        Ok(Text { command, cwd: cwd.transpose()?, env })
    })
    .await?;

    let (client, stream) = events::channel();
    let mut first = Vec::new();
    Event::init(id.clone(), now()).frame(&mut first);
    Event::ping(now()).frame(&mut first);
    client.try_send(Bytes::from(first)).expect("invariant: a new channel has room");
    let all = daemon.sessions.all();
    let session = all.get(&id).ok_or_else(|| ApiError::no_session(&id))?;
    let place = Arc::clone(&session.places).try_acquire_owned().map_err(|_| {
        ApiError::refused(format!("the session is busy: {RUNS} of its runs wait or run"))
    })?;
    let timeout = (timeout > 0).then(|| Duration::from_millis(timeout));
    let order = Order { text, timeout, client, _place: place };
    if session.mailbox.send(Message::Run(order)).is_err() {
        return Err(ApiError::no_session(&id));
    }
    drop(all);
    Ok(reply::events(stream))
}

/// `DELETE /session/{id}`.
async fn remove(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let session = daemon.sessions.all().remove(&id);
    let Session { mailbox, task, places: _ } = session.ok_or_else(|| ApiError::no_session(&id))?;
    drop(mailbox);
    // The only failure is that the program ends.
    drop(task.await);
    Ok(reply::empty())
}
