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
        birth: Birth,
    ) -> Result<Self, ApiError> {
        let pid = Arc::new(AtomicI32::new(0));
        let name = language.name();
        if kind != Some(ContextKind::Builtin)
            && let Some(spec) = Spec::find(name, &birth.env)
        {
            let kernel = Runner::kernel(daemon, language, spec, birth.clone(), Arc::clone(&pid));
            if kernel.is_ok() || kind.is_some() || !is_builtin(language) {
                return Ok(Self { runner: kernel?, kind: ContextKind::Jupyter, pid });
            }
        }
        if kind == Some(ContextKind::Jupyter) {
            return Err(ApiError::refused(format!("this image has no kernelspec for {name}")));
        }
        let runner = Runner::builtin(daemon, language, birth, Arc::clone(&pid))?;
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
    fn kernel(
        daemon: &Arc<Daemon>,
        language: Language,
        spec: Spec,
        birth: Birth,
        pid: Arc<AtomicI32>,
    ) -> Result<Self, ApiError> {
        let name = spec.name().to_owned();
        let started = Kernel::start(daemon, language, spec, birth, pid);
        let kernel = started.map_err(|error| {
            ApiError::refused(format!(
                "cannot start the kernel of the kernelspec {name:?}: {error}"
            ))
        })?;
        Ok(Self::Executor(Desk::open(daemon, kernel)))
    }

    fn builtin(
        daemon: &Arc<Daemon>,
        language: Language,
        birth: Birth,
        pid: Arc<AtomicI32>,
    ) -> Result<Self, ApiError> {
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
        Ok(Self::Executor(Desk::open(daemon, interpreter)))
    }

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

/// Whether a language needs no kernel.
fn is_builtin(language: Language) -> bool {
    language == Language::Bash || Driver::of(language).is_some()
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
