use std::{
    ffi::OsStr,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
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
    queue::Desk,
    session::{self, Text},
};

/// What was started for a language.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) runner: Runner,
    pub(super) kind: ContextKind,
    /// The number of its process, or of the next one if it ends; 0 if there is none.
    pub(super) pid: Arc<AtomicI32>,
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
        let spec = Spec::find(language.name(), &birth.env);
        let kernel = |spec| Self::kernel(daemon, language, spec, birth.clone());
        let builtin = || Self::builtin(daemon, language, birth.clone());
        match (kind, spec) {
            (Some(ContextKind::Jupyter), Some(spec)) => kernel(spec),
            (Some(ContextKind::Jupyter), None) => {
                let name = language.name();
                Err(ApiError::refused(format!("this image has no kernelspec for {name}")))
            }
            (None, Some(spec)) if is_builtin_better(language) => {
                builtin().or_else(|error| kernel(spec).map_err(|_| error))
            }
            (None, Some(spec)) => match kernel(spec) {
                Err(_) if Driver::of(language).is_some() => builtin(),
                started => started,
            },
            (Some(ContextKind::Builtin), _) | (None, None) => builtin(),
        }
    }

    fn kernel(
        daemon: &Arc<Daemon>,
        language: Language,
        spec: Spec,
        birth: Birth,
    ) -> Result<Self, ApiError> {
        let pid = Arc::new(AtomicI32::new(0));
        let name = spec.name().to_owned();
        let started = Kernel::start(daemon, language, spec, birth, Arc::clone(&pid));
        let kernel = started.map_err(|error| {
            ApiError::refused(format!(
                "cannot start the kernel of the kernelspec {name:?}: {error}"
            ))
        })?;
        let runner = Runner::Executor(Desk::open(daemon, kernel));
        Ok(Self { runner, kind: ContextKind::Jupyter, pid })
    }

    fn builtin(daemon: &Arc<Daemon>, language: Language, birth: Birth) -> Result<Self, ApiError> {
        let pid = Arc::new(AtomicI32::new(0));
        let name = language.name();
        let runner = if language == Language::Bash {
            Runner::Shell(Desk::open(daemon, session::verbatim(daemon, birth)?))
        } else {
            let driver = Driver::of(language).ok_or_else(|| {
                ApiError::refused(format!("this image has nothing to run {name} with"))
            })?;
            let started = Interpreter::start(daemon, driver, birth, Arc::clone(&pid));
            let interpreter = started.map_err(|error| {
                let program = driver.programs().join(" or ");
                ApiError::refused(format!("cannot start {program}, which {name} needs: {error}"))
            })?;
            Runner::Executor(Desk::open(daemon, interpreter))
        };
        Ok(Self { runner, kind: ContextKind::Builtin, pid })
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
    /// Has it do something of which nobody hears. What is returned is closed once it is done; if
    /// it is dropped before, it is not done.
    pub(super) fn tell(
        &self,
        cell: Cell,
        timeout: Option<Duration>,
    ) -> Option<mpsc::Receiver<Bytes>> {
        let Self::Executor(desk) = self else { return None };
        let (client, told) = mpsc::channel(1);
        let taken = desk.order(cell, timeout, client).unwrap_or(false);
        taken.then_some(told)
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
            let message = format!("{name} is {other:?}, which is neither builtin nor jupyter");
            Err(ApiError::refused(message))
        }
    }
}
