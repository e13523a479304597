use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use osb_api::execd::{CodeContext, ContextKind};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use uuid::Uuid;

use super::{
    driver::Driver,
    interpreter::{Cell, Interpreter},
    language::Language,
};
use crate::{
    blocking::blocking,
    daemon::Daemon,
    error::ApiError,
    queue::Desk,
    session::{self, Text},
};

/// The most contexts at a time; each is a process.
const CONTEXTS: usize = 64;

/// All contexts, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    all: Mutex<Vec<Arc<Context>>>,
    /// Held by whoever makes the default context of a language.
    defaults: AsyncMutex<()>,
}

/// A state that code runs in.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) id: String,
    pub(super) language: Language,
    cwd: Option<String>,
    /// Whoever names no context of this language means this one.
    is_default: bool,
    pid: Arc<AtomicI32>,
    desk: Mutex<Option<Runner>>,
}

/// Who runs the code.
#[derive(Debug)]
enum Runner {
    Shell(Desk<Text>),
    Interpreter(Desk<Cell>),
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

    /// Interrupts the cell of a context. Resolves once it has ended; nothing if there is no such
    /// context.
    pub(crate) async fn interrupt(&self, id: &str) -> Option<()> {
        let context = self.get(id).ok()?;
        let interrupted = match &*context.desk() {
            Some(Runner::Shell(desk)) => futures_util::future::Either::Left(desk.interrupt()),
            Some(Runner::Interpreter(desk)) => {
                futures_util::future::Either::Right(desk.interrupt())
            }
            None => return None,
        };
        interrupted.await;
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
            None => self.make(daemon, language, None, true).await,
        }
    }

    pub(super) async fn create(
        &self,
        daemon: &Arc<Daemon>,
        language: Language,
        cwd: Option<String>,
    ) -> Result<Arc<Context>, ApiError> {
        self.make(daemon, language, cwd, false).await
    }

    async fn make(
        &self,
        daemon: &Arc<Daemon>,
        language: Language,
        cwd: Option<String>,
        is_default: bool,
    ) -> Result<Arc<Context>, ApiError> {
        self.check_room()?;
        let pid = Arc::new(AtomicI32::new(0));
        let (worker, place, number) = (Arc::clone(daemon), cwd.clone(), Arc::clone(&pid));
        let runner = blocking(move || Runner::start(&worker, language, place, number)).await?;
        self.check_room()?;
        let desk = Mutex::new(Some(runner));
        let id = Uuid::new_v4().to_string();
        let context = Arc::new(Context { id, language, cwd, is_default, pid, desk });
        self.all().push(Arc::clone(&context));
        Ok(context)
    }

    /// Ends a context.
    pub(super) async fn remove(&self, id: &str) -> Result<(), ApiError> {
        let context = self.get(id)?;
        self.all().retain(|other| other.id != id);
        let runner = context.desk().take();
        match runner {
            Some(Runner::Shell(desk)) => desk.close().await,
            Some(Runner::Interpreter(desk)) => desk.close().await,
            None => {}
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
        let taken = match &*self.desk() {
            Some(Runner::Shell(desk)) => desk.order(Text::of(daemon, code), timeout, client)?,
            Some(Runner::Interpreter(desk)) => desk.order(Cell(code), timeout, client)?,
            None => false,
        };
        let gone = || ApiError::no_context(format!("there is no context {:?}", self.id));
        taken.then_some(()).ok_or_else(gone)
    }

    pub(super) fn describe(&self) -> CodeContext {
        CodeContext {
            id: self.id.clone(),
            language: self.language.name().to_owned(),
            cwd: self.cwd.clone(),
            kind: Some(ContextKind::Builtin),
            memory: memory(self.pid.load(Ordering::Relaxed)),
        }
    }

    fn desk(&self) -> MutexGuard<'_, Option<Runner>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner {
    /// Starts what a language needs. This looks at files, so it is for a thread that may wait.
    fn start(
        daemon: &Arc<Daemon>,
        language: Language,
        cwd: Option<String>,
        pid: Arc<AtomicI32>,
    ) -> Result<Self, ApiError> {
        let birth = session::birth(daemon, cwd)?;
        if language == Language::Bash {
            return Ok(Self::Shell(Desk::open(daemon, session::verbatim(daemon, birth)?)));
        }
        let name = language.name();
        let driver = Driver::of(language).ok_or_else(|| {
            ApiError::refused(format!("this image has nothing to run {name} with"))
        })?;
        let started = Interpreter::start(daemon, driver, birth, pid);
        let interpreter = started.map_err(|error| {
            let program = driver.programs().join(" or ");
            ApiError::refused(format!("cannot start {program}, which {name} needs: {error}"))
        })?;
        Ok(Self::Interpreter(Desk::open(daemon, interpreter)))
    }
}

/// The memory that a process has for itself and its pages of files, in bytes.
fn memory(pid: i32) -> Option<u64> {
    let pid = (pid > 0).then_some(pid)?;
    let status = osb_sys::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = resident.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}
