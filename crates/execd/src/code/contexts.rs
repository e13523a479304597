use std::{
    future::pending,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use osb_api::execd::{CodeContext, ContextKind};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, mpsc},
    time::sleep,
};
use uuid::Uuid;

use super::{
    ahead::{Ahead, Known},
    cell::Cell,
    language::Language,
    runner::{self, Runner, Started},
};
use crate::{
    blocking::blocking,
    daemon::Daemon,
    driven::Birth,
    error::ApiError,
    session::{self, Text},
};

/// The most contexts at a time; each is a process.
const CONTEXTS: usize = 64;

/// How often to look for those that have nothing to do.
const LOOK: Duration = Duration::from_mins(1);

/// How long an interpreter that nobody waits for may take to import what it should have.
const IMPORTING: Duration = Duration::from_secs(30);

/// How long it may take to hear whom it is for, which is a matter of milliseconds.
const BECOMING: Duration = Duration::from_secs(10);

/// All contexts, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    all: Mutex<Vec<Arc<Context>>>,
    spare: Mutex<Vec<Spare>>,
    made: Notify,
    /// Held by whoever makes the default context of a language.
    defaults: AsyncMutex<()>,
    /// Held while interpreters are started ahead. Who wants one waits for it, and starts no second.
    starting: AsyncMutex<()>,
}

/// A state that code runs in.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) id: String,
    pub(super) language: Language,
    cwd: Option<String>,
    /// Whoever names no context of this language means this one.
    is_default: bool,
    kind: ContextKind,
    pid: Arc<AtomicI32>,
    /// For how many milliseconds it had nothing to do.
    idle: AtomicU64,
    desk: Mutex<Option<Runner>>,
}

/// An interpreter that nobody has a cell for yet.
#[derive(Debug)]
struct Spare {
    language: Language,
    /// What it was started with.
    birth: Birth,
    started: Started,
    /// For how long nobody had one.
    idle: Duration,
}

impl Contexts {
    pub(super) fn list(&self, language: Option<Language>) -> Vec<Arc<Context>> {
        let is_wanted = |context: &&Arc<Context>| language.is_none_or(|it| it == context.language);
        self.all().iter().filter(is_wanted).cloned().collect()
    }

    pub(super) fn get(&self, id: &str) -> Result<Arc<Context>, ApiError> {
        let found = self.all().iter().find(|context| context.id == id).cloned();
        found.ok_or_else(|| ApiError::no_context(format!("there is no context {id:?}")))
    }

    /// How many run a cell, or are about to.
    pub(crate) fn running(&self) -> usize {
        let is_busy =
            |context: &&Arc<Context>| context.desk().as_ref().is_some_and(Runner::is_busy);
        self.all().iter().filter(is_busy).count()
    }

    /// Interrupts the cell of a context. Resolves once it has ended; nothing if there is no such
    /// context.
    pub(crate) async fn interrupt(&self, id: &str) -> Option<()> {
        let context = self.get(id).ok()?;
        let interrupted = context.desk().as_ref().map(Runner::interrupt);
        interrupted?.await;
        Some(())
    }

    /// The context that is meant if none is named.
    pub(super) async fn default_of(
        &self,
        daemon: &Arc<Daemon>,
        language: Language,
    ) -> Result<Arc<Context>, ApiError> {
        let find = || {
            let is_it =
                |context: &&Arc<Context>| context.is_default && context.language == language;
            self.all().iter().find(is_it).cloned()
        };
        if let Some(context) = find() {
            return Ok(context);
        }
        let _making = self.defaults.lock().await;
        match find() {
            Some(context) => Ok(context),
            None => self.make(daemon, language, None, None, true).await,
        }
    }

    pub(super) async fn create(
        &self,
        daemon: &Arc<Daemon>,
        language: Language,
        cwd: Option<String>,
        kind: Option<ContextKind>,
    ) -> Result<Arc<Context>, ApiError> {
        self.make(daemon, language, cwd, kind, false).await
    }

    async fn make(
        &self,
        daemon: &Arc<Daemon>,
        language: Language,
        cwd: Option<String>,
        kind: Option<ContextKind>,
        is_default: bool,
    ) -> Result<Arc<Context>, ApiError> {
        self.check_room()?;
        drop(self.starting.lock().await);
        let worker = Arc::clone(daemon);
        let started = blocking(move || {
            let is_placed = cwd.is_some();
            let birth = session::birth(&worker, cwd)?;
            let cwd = is_placed.then(|| plain(&birth.cwd));
            let kind = kind.map_or_else(|| runner::usual(&worker), |kind| Ok(Some(kind)))?;
            let started = match worker.contexts.take_spare(language, kind, &birth) {
                Some(spare) => spare.become_of(&worker, birth),
                None => Started::new(&worker, language, kind, &birth),
            };
            Ok((started?, cwd))
        });
        let (Started { runner, kind, pid, .. }, cwd) = started.await?;
        self.check_room()?;
        let id = Uuid::new_v4().to_string();
        let (idle, desk) = (AtomicU64::new(0), Mutex::new(Some(runner)));
        let context = Arc::new(Context { id, language, cwd, is_default, kind, pid, idle, desk });
        self.all().push(Arc::clone(&context));
        self.made.notify_one();
        Ok(context)
    }

    /// Ends the interpreters that had nothing to do for so long, for ever. A sandbox that
    /// is paused lives no time: however late a look comes, it counts once.
    pub(crate) async fn let_rest<Never>(&self, daemon: &Daemon, limit: Option<Duration>) -> Never {
        let Some(limit) = limit else { return pending().await };
        let step = LOOK.min(limit);
        loop {
            if self.all().is_empty() && self.spare().is_empty() {
                self.made.notified().await;
            }
            sleep(step).await;
            self.spare().retain_mut(|spare| {
                spare.idle += step;
                spare.idle < limit
            });
            for context in self.list(None) {
                if let Some(told) = context.grow_idle(step, limit) {
                    daemon.tasks.spawn(gone(told));
                }
            }
        }
    }

    /// Starts what is wanted ahead and is not there, and does not wait for more.
    pub(crate) async fn begin(&self, daemon: &Arc<Daemon>, ahead: Ahead) {
        for readying in self.start_ahead(daemon, ahead).await {
            daemon.tasks.spawn(gone(readying));
        }
    }

    /// Starts what is wanted ahead, and waits until it is ready to run code.
    pub(crate) async fn prepare(&self, daemon: &Arc<Daemon>, ahead: Ahead) {
        for readying in self.start_ahead(daemon, ahead).await {
            gone(readying).await;
        }
    }

    async fn start_ahead(
        &self,
        daemon: &Arc<Daemon>,
        Ahead { languages, imports }: Ahead,
    ) -> Vec<mpsc::Receiver<Bytes>> {
        let _starting = self.starting.lock().await;
        let mut readying = Vec::new();
        for language in languages {
            let imports = if language == Language::Python { imports.clone() } else { Vec::new() };
            let is_there = |spare: &&Spare| spare.language == language;
            if let Some(spare) = self.spare().iter().find(is_there) {
                readying.extend(spare.started.runner.tell(Cell::Import(imports), IMPORTING));
                continue;
            }
            let worker = Arc::clone(daemon);
            let started = blocking(move || {
                let birth = session::birth(&worker, None)?;
                let kind = runner::usual(&worker)?;
                Ok((Started::new(&worker, language, kind, &birth)?, birth))
            });
            // Why it could not be started, whoever asks for it is told.
            let Ok((started, birth)) = started.await else { continue };
            readying.extend(started.runner.tell(Cell::Import(imports), IMPORTING));
            self.spare().push(Spare { language, birth, started, idle: Duration::ZERO });
            self.made.notify_one();
        }
        readying
    }

    /// What another one needs to go on.
    pub(crate) fn handed_over(&self) -> Self {
        let spare = std::mem::take(&mut *self.spare());
        Self { spare: Mutex::new(spare), ..Self::default() }
    }

    /// An interpreter that was started ahead and can be the one that is wanted.
    fn take_spare(
        &self,
        language: Language,
        kind: Option<ContextKind>,
        wanted: &Birth,
    ) -> Option<Spare> {
        let mut all = self.spare();
        let is_it = |spare: &Spare| {
            spare.language == language && kind.is_none_or(|kind| kind == spare.started.kind)
        };
        let at = all.iter().position(is_it)?;
        let spare = all.swap_remove(at);
        let Started { kind, version, .. } = &spare.started;
        let version = version.get().map(String::as_str);
        if (Known { language, kind: *kind, version }).suits(&spare.birth, wanted) {
            return Some(spare);
        }
        // Another directory is this context's own; other variables are what all of them have now.
        if spare.birth.env == wanted.env {
            all.push(spare);
        }
        None
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a context.
    pub(super) async fn remove(&self, id: &str) -> Result<(), ApiError> {
        let context = self.get(id)?;
        self.all().retain(|other| other.id != id);
        let runner = context.desk().take();
        if let Some(runner) = runner {
            runner.close().await;
        }
        Ok(())
    }

    fn check_room(&self) -> Result<(), ApiError> {
        if self.all().len() < CONTEXTS {
            return Ok(());
        }
        Err(ApiError::too_many("contexts", CONTEXTS))
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Context>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Context {
    /// Lines code up.
    pub(super) fn order(
        &self,
        daemon: &Daemon,
        code: String,
        timeout: Option<Duration>,
        client: mpsc::Sender<Bytes>,
    ) -> Result<(), ApiError> {
        self.idle.store(0, Ordering::Relaxed);
        let taken = match &*self.desk() {
            Some(Runner::Shell(desk)) => desk.order(Text::of(daemon, code), timeout, client)?,
            Some(Runner::Executor(desk)) => desk.order(Cell::Code(code), timeout, client)?,
            None => false,
        };
        let gone = || ApiError::no_context(format!("there is no context {:?}", self.id));
        taken.then_some(()).ok_or_else(gone)
    }

    /// Notes that so much time has passed. Its interpreter is to end if it had nothing to do for too long.
    fn grow_idle(&self, step: Duration, limit: Duration) -> Option<mpsc::Receiver<Bytes>> {
        let runner = self.desk();
        let Some(runner @ Runner::Executor(desk)) = &*runner else { return None };
        let step = u64::try_from(step.as_millis()).unwrap_or(u64::MAX);
        let idle = self.idle.fetch_add(step, Ordering::Relaxed).saturating_add(step);
        if desk.is_busy() || self.pid.load(Ordering::Relaxed) == 0 {
            self.idle.store(0, Ordering::Relaxed);
            return None;
        }
        let is_over = u128::from(idle) >= limit.as_millis();
        is_over.then(|| runner.tell(Cell::Rest, BECOMING)).flatten()
    }

    pub(super) fn describe(&self) -> CodeContext {
        CodeContext {
            id: self.id.clone(),
            language: self.language.name().to_owned(),
            cwd: self.cwd.clone(),
            kind: Some(self.kind),
            memory: Started::memory(&self.pid),
        }
    }

    fn desk(&self) -> MutexGuard<'_, Option<Runner>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spare {
    /// Makes it the one that a context begins with.
    fn become_of(self, daemon: &Arc<Daemon>, birth: Birth) -> Result<Started, ApiError> {
        let cell = Cell::Become(Arc::clone(daemon), birth);
        match self.started.runner.tell(cell, BECOMING) {
            Some(told) => {
                daemon.tasks.spawn(gone(told));
                Ok(self.started)
            }
            None => Err(ApiError::refused("the interpreter has just ended: try again")),
        }
    }
}

/// A path without the parts that mean nothing.
fn plain(path: &Path) -> String {
    path.components().collect::<PathBuf>().to_string_lossy().into_owned()
}

/// Waits until something is done of which nobody hears.
async fn gone(mut told: mpsc::Receiver<Bytes>) {
    while told.recv().await.is_some() {}
}
