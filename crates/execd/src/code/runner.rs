use std::{
    ffi::OsStr,
    future::Future,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use futures_util::future::Either;
use osb_api::execd::ContextKind;
use tokio::sync::mpsc;

use super::{
    cell::Cell,
    driver::Driver,
    interpreter::Interpreter,
    kernel::{Kernel, Spec},
    language::Language,
};
use crate::{
    daemon::Daemon,
    driven::Birth,
    env,
    error::ApiError,
    program::NotStarted,
    queue::Desk,
    session::{self, Text},
};

/// Where kernels are to be had.
const HAS_KERNELS: &str = "such as the environment opensandbox/code-interpreter has";

/// What was started for a language.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) runner: Runner,
    pub(super) kind: ContextKind,
    /// The number of its process, or of the next one if it ends; 0 if there is none.
    pub(super) pid: Arc<AtomicI32>,
    /// The version that it says it has, once it has.
    pub(super) version: Arc<OnceLock<String>>,
}

/// Who runs the code.
#[derive(Debug)]
pub(super) enum Runner {
    Shell(Desk<Text>),
    /// An interpreter or a kernel.
    Executor(Desk<Cell>),
}

impl Started {
    /// Starts what a language needs: of this kind, or of any. This looks at files, so it is for a
    /// thread that may wait.
    pub(super) fn new(
        daemon: &Arc<Daemon>,
        language: Language,
        kind: Option<ContextKind>,
        birth: &Birth,
    ) -> Result<Self, ApiError> {
        let name = language.name();
        let kernel = || {
            let spec = Spec::find(name, &birth.env);
            spec.map(|spec| Self::kernel(daemon, language, spec, birth.clone()))
        };
        let builtin = || Self::builtin(daemon, language, kind, birth.clone());
        match kind {
            Some(ContextKind::Builtin) => builtin(),
            Some(ContextKind::Jupyter) => kernel().unwrap_or_else(|| {
                Err(ApiError::no_language(format!(
                    "this image has no kernelspec for {name}: leave out the kind, or take an image \
                     with a Jupyter kernel for it, {HAS_KERNELS}"
                )))
            }),
            None if is_builtin_better(language) => match builtin() {
                Err(error) => kernel().and_then(Result::ok).ok_or(error),
                started => started,
            },
            None => match kernel() {
                None => builtin(),
                Some(Err(_)) if Driver::of(language).is_some() => builtin(),
                Some(started) => started,
            },
        }
    }

    fn kernel(
        daemon: &Arc<Daemon>,
        language: Language,
        spec: Spec,
        birth: Birth,
    ) -> Result<Self, ApiError> {
        let pid = Arc::new(AtomicI32::new(0));
        let version = Arc::default();
        let name = spec.name().to_owned();
        let facts = (Arc::clone(&pid), Arc::clone(&version));
        let started = Kernel::start(daemon, language, spec, birth, facts);
        let kernel = started.map_err(|error| {
            let message = format!("cannot start the kernel of the kernelspec {name:?}: {error}");
            not_started(&error, message)
        })?;
        let runner = Runner::Executor(Desk::open(daemon, kernel));
        Ok(Self { runner, kind: ContextKind::Jupyter, pid, version })
    }

    fn builtin(
        daemon: &Arc<Daemon>,
        language: Language,
        asked: Option<ContextKind>,
        birth: Birth,
    ) -> Result<Self, ApiError> {
        let pid = Arc::new(AtomicI32::new(0));
        let name = language.name();
        let runner = if language == Language::Bash {
            Runner::Shell(Desk::open(daemon, session::verbatim(daemon, birth)?))
        } else {
            let driver = Driver::of(language).ok_or_else(|| {
                ApiError::no_language(match asked {
                    Some(_) => format!(
                        "{name} runs in a Jupyter kernel alone, not in what is builtin: ask for the \
                         kind jupyter"
                    ),
                    None => format!(
                        "this image has nothing to run {name} with: {name} needs a Jupyter kernel, \
                         {HAS_KERNELS}"
                    ),
                })
            })?;
            let started = Interpreter::start(daemon, driver, birth, Arc::clone(&pid));
            let interpreter = started.map_err(|error| {
                let program = driver.programs().join(" or ");
                let message = format!("cannot start {program}, which {name} needs: {error}");
                not_started(&error, message)
            })?;
            Runner::Executor(Desk::open(daemon, interpreter))
        };
        Ok(Self { runner, kind: ContextKind::Builtin, pid, version: Arc::default() })
    }

    /// The memory that its process has for itself and its pages of files, in bytes.
    pub(super) fn memory(pid: &AtomicI32) -> Option<u64> {
        let pid = Some(pid.load(Ordering::Relaxed)).filter(|pid| *pid > 0)?;
        let status = osb_sys::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = resident.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes << 10)
    }
}

impl Runner {
    /// Has it do something of which nobody hears. What is returned is closed once it is over; if it
    /// is dropped before, it is given up.
    pub(super) fn tell(&self, cell: Cell, timeout: Duration) -> Option<mpsc::Receiver<Bytes>> {
        match self {
            Self::Executor(desk) => desk.order_unseen(cell, timeout),
            Self::Shell(_) => None,
        }
    }

    /// Whether a cell runs, or waits for that.
    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::Shell(desk) => desk.is_busy(),
            Self::Executor(desk) => desk.is_busy(),
        }
    }

    /// Interrupts the cell in progress. Resolves once it has ended.
    pub(super) fn interrupt(&self) -> impl Future<Output = bool> + use<> {
        match self {
            Self::Shell(desk) => Either::Left(desk.interrupt()),
            Self::Executor(desk) => Either::Right(desk.interrupt()),
        }
    }

    /// Ends it.
    pub(super) async fn close(self) {
        match self {
            Self::Shell(desk) => desk.close().await,
            Self::Executor(desk) => desk.close().await,
        }
    }
}

/// Says that a program could not be started: whose image lacks it can take another.
fn not_started(error: &NotStarted, message: String) -> ApiError {
    if error.kind == io::ErrorKind::NotFound {
        ApiError::no_language(format!("{message}: take an image that has it"))
    } else {
        ApiError::refused(message)
    }
}

/// Whether code of a language is better off without a kernel. The one for bash takes seconds to start and
/// knows no more than bash; the one for JavaScript prints values, and does not say what they are.
fn is_builtin_better(language: Language) -> bool {
    matches!(language, Language::Bash | Language::JavaScript)
}

/// What runs code if nobody says, as whoever made the sandbox has decided.
pub(super) fn usual(daemon: &Daemon) -> Result<Option<ContextKind>, ApiError> {
    let said = daemon.environment.base().get(OsStr::new(env::CODE_KIND));
    match said.map(|kind| kind.to_string_lossy()).as_deref() {
        None | Some("") => Ok(None),
        Some("builtin") => Ok(Some(ContextKind::Builtin)),
        Some("jupyter") => Ok(Some(ContextKind::Jupyter)),
        Some(other) => {
            let name = env::CODE_KIND;
            let message = format!(
                "{name} is {other:?}, which is neither builtin nor jupyter: say one of them, or make \
                 the sandbox without the variable"
            );
            Err(ApiError::no_language(message))
        }
    }
}
