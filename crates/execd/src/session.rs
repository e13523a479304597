//! Shells that remember: one bash for each session, which runs one text after the other.
//!
//! Every session has a task that takes its runs in order. It drives a bash
//! that evaluates one text after the other (`driver.bash`), and after each tells its status and
//! all of its state (`report`, `state`). When a run ends the shell, the next one takes over the
//! last state (`host`): with `exit` or by an error in the same process, after `exec` or a kill in
//! a new one.

mod driver;
mod host;
mod report;
mod state;
mod statement;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    response::Response,
    routing::{delete, post},
};
use osb_api::execd::{CreateSession, RunInSession, SessionCreated};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::{
    blocking::blocking, daemon::Daemon, driven::Birth, error::ApiError, events, queue::Desk, reply,
    request as body,
};
pub(crate) use host::Text;
use host::{Cut, Host};

/// The most sessions at a time; each is a process.
const SESSIONS: usize = 256;

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
    all: Mutex<HashMap<String, Desk<Text>>>,
    states: Arc<Semaphore>,
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
        let interrupted = self.all().get(id)?.interrupt();
        Some(interrupted.await)
    }

    /// How many run something, or are about to.
    pub(crate) fn running(&self) -> usize {
        self.all().values().filter(|desk| desk.is_busy()).count()
    }

    fn check_room(&self) -> Result<(), ApiError> {
        if self.all().len() < SESSIONS {
            return Ok(());
        }
        Err(ApiError::refused(format!(
            "there are {SESSIONS} sessions: delete one before you create another"
        )))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Desk<Text>>> {
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
    let session_id = Uuid::new_v4().to_string();
    daemon.sessions.all().insert(session_id.clone(), Desk::open(&daemon, host));
    Ok(reply::json(&SessionCreated { session_id }))
}

/// Starts the shell of a session. This looks at files, so it is for a thread that may wait.
fn begin(daemon: &Arc<Daemon>, cwd: Option<String>) -> Result<Host, ApiError> {
    host(daemon, birth(daemon, cwd)?, Cut::Lines)
}

/// The same with its output as it comes.
pub(crate) fn verbatim(daemon: &Arc<Daemon>, birth: Birth) -> Result<Host, ApiError> {
    host(daemon, birth, Cut::Verbatim)
}

fn host(daemon: &Arc<Daemon>, birth: Birth, cut: Cut) -> Result<Host, ApiError> {
    Host::start(daemon, birth, Arc::clone(&daemon.sessions.states), cut).map_err(|error| {
        ApiError::refused(format!("cannot start bash, which a session needs: {error}"))
    })
}

/// What a process begins with that somebody wants to keep. This looks at files.
pub(crate) fn birth(daemon: &Daemon, cwd: Option<String>) -> Result<Birth, ApiError> {
    let env = daemon.environment.for_command(&BTreeMap::new());
    let cwd = match cwd {
        None => daemon.environment.workdir().to_owned(),
        Some(given) if given.contains('\0') => {
            return Err(ApiError::invalid("`cwd` is not a path"));
        }
        Some(given) => {
            let cwd = daemon.environment.path_with(&given, &env);
            daemon.environment.make_directory(&cwd).map_err(|error| ApiError::runtime(&error))?;
            cwd
        }
    };
    Ok(Birth { cwd, env })
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

    let (client, stream) = events::begin(&id);
    let all = daemon.sessions.all();
    let session = all.get(&id).ok_or_else(|| ApiError::no_session(&id))?;
    let timeout = (timeout > 0).then(|| Duration::from_millis(timeout));
    if !session.order(text, timeout, client)? {
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
    session.ok_or_else(|| ApiError::no_session(&id))?.close().await;
    Ok(reply::empty())
}
