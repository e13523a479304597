use std::{future::pending, sync::Arc};

use osb_core::Token;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::TaskTracker;

use crate::{
    boot::{Start, StartError},
    entrypoint,
    environment::Environment,
    metrics::Meter,
    reaper::Reaper,
    routes,
    serve::Listener,
};

/// What every request can reach.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) token: Option<Token>,
    pub(crate) environment: Environment,
    pub(crate) reaper: Reaper,
    pub(crate) meter: Meter,
    /// Everything that runs beside the accept loop.
    pub(crate) tasks: TaskTracker,
}

/// Serves until the entrypoint ends or a signal asks for the end; the result is the exit code.
pub async fn run(start: Start) -> Result<u8, StartError> {
    let Start { listen, token, environment, entrypoint, meter } = start;
    let listener = Listener::bind(listen).await?;
    let mut children = signal(SignalKind::child()).map_err(StartError::Runtime)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Runtime)?;

    let tasks = TaskTracker::new();
    let daemon = Arc::new(Daemon { token, environment, reaper: Reaper::default(), meter, tasks });
    let reaping = async {
        while children.recv().await.is_some() {
            daemon.reaper.reap();
        }
        pending().await
    };
    let main = entrypoint.map(|argv| entrypoint::start(&daemon, &argv)).transpose();
    let main = match main {
        Ok(main) => main,
        Err(failure) => return Ok(failure.report()),
    };
    let main_pid = main.as_ref().map(|main| main.pid);
    let ended = async {
        match main {
            Some(main) => main.exited.await.code(),
            None => pending().await,
        }
    };
    let asked_to_end = async {
        loop {
            let asked = tokio::select! {
                asked = terminate.recv() => asked.map(|()| Signal::TERM),
                asked = interrupt.recv() => asked.map(|()| Signal::INT),
            };
            match (asked, main_pid) {
                (Some(signal), Some(pid)) => daemon.reaper.signal(pid, signal),
                (Some(_), None) => return 0,
                (None, _) => pending().await,
            }
        }
    };
    tokio::select! {
        code = ended => Ok(code),
        code = asked_to_end => Ok(code),
        never = reaping => never,
        never = listener.serve(Arc::clone(&daemon), routes::table(Arc::clone(&daemon))) => never,
    }
}
