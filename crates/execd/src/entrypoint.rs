//! The program that the sandbox is for.

mod routes;
mod times;

use std::{
    fs::File,
    io::{self, PipeReader, Write, stderr},
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use osb_api::execd::EntrypointStatus;
use osb_core::{
    Clock, SystemClock,
    agent::{self, IDLE},
};
use osb_sys::spawn::Streams;
use rustix::process::Pid;
use tokio::net::unix::pipe::Receiver;
use tokio_util::sync::CancellationToken;

pub(crate) use routes::routes;
use times::Times;

use crate::{
    daemon::Daemon,
    outlet::Outlet,
    output::READ,
    program::{Launch, NotStarted, Program, nothing},
    reaper::{Exit, Exited},
    retained::Retained,
};

/// How much of what it prints is kept.
const KEPT: u64 = agent::output::LARGEST;

/// The entrypoint, what it has printed, and how it fares.
#[derive(Debug)]
pub(crate) struct Entrypoint {
    argv: Vec<String>,
    output: Arc<Retained>,
    times: Arc<Mutex<Times>>,
    started_at: Timestamp,
    ended: Mutex<Option<(Timestamp, Exit)>>,
    /// Nothing that it still writes is waited for.
    over: CancellationToken,
}

/// The process of the entrypoint.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) leader: Pid,
    pub(crate) exited: Exited,
}

/// Where what the entrypoint prints also goes.
#[derive(Debug, Default)]
pub(crate) struct Outlets {
    pub(crate) stdout: Option<Outlet>,
    pub(crate) stderr: Option<Outlet>,
}

/// Why the entrypoint did not start.
#[derive(Debug)]
pub(crate) struct Failure {
    program: String,
    source: NotStarted,
}

impl Failure {
    /// Tells it where the entrypoint's own messages would have gone, and returns the exit code
    /// that shells give to it.
    pub(crate) fn report(self) -> u8 {
        // With nobody to read it there is nobody to tell.
        drop(writeln!(stderr(), "execd: cannot start {}: {}", self.program, self.source));
        if self.source.kind == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

impl Entrypoint {
    /// Keeps what it prints in `file`, so that others find it there.
    pub(crate) fn new(argv: Vec<String>, file: Option<File>) -> Self {
        let output = match file {
            Some(file) => Retained::in_file(file),
            None => Retained::new(KEPT),
        };
        Self {
            argv,
            output: Arc::new(output),
            times: Arc::default(),
            started_at: SystemClock.now(),
            ended: Mutex::default(),
            over: CancellationToken::new(),
        }
    }

    /// Whether it is there to do nothing, for which no program is needed.
    pub(crate) fn is_idle(&self) -> bool {
        self.argv == IDLE
    }

    /// Starts it. All that it prints is read at once, kept within a bound, and passed on.
    pub(crate) async fn start(
        &self,
        daemon: &Arc<Daemon>,
        outlets: Outlets,
    ) -> Result<Process, Failure> {
        self.launch(daemon, outlets).await.map_err(|source| Failure {
            program: self.argv.first().cloned().unwrap_or_default(),
            source,
        })
    }

    async fn launch(&self, daemon: &Arc<Daemon>, outlets: Outlets) -> Result<Process, NotStarted> {
        let launch = Launch {
            program: Program::Argv(self.argv.clone()),
            cwd: daemon.environment.workdir().to_owned(),
            env: daemon.environment.base().clone(),
            identity: daemon.environment.identity(None),
        };
        let (stdin, (our_stdout, stdout), (our_stderr, stderr)) =
            (nothing()?, io::pipe()?, io::pipe()?);
        let copy = |pipe: PipeReader, outlet| -> io::Result<Copy> {
            let pipe = Receiver::from_owned_fd(pipe.into())?;
            let (output, times) = (Arc::clone(&self.output), Arc::clone(&self.times));
            Ok(Copy { pipe, output, times, outlet })
        };
        let copies = [copy(our_stdout, outlets.stdout)?, copy(our_stderr, outlets.stderr)?];
        let starter = Arc::clone(daemon);
        // In another thread, for whoever made this sandbox calls before the program is read.
        let starting = tokio::task::spawn_blocking(move || {
            let (input, output, errors) = (stdin.as_fd(), stdout.as_fd(), stderr.as_fd());
            launch.start(&starter.reaper, Streams::Apart { input, output, errors })
        });
        let (leader, exited) = starting.await.map_err(io::Error::from)??;
        for copy in copies {
            daemon.tasks.spawn(copy.until(self.over.clone()));
        }
        Ok(Process { leader, exited })
    }

    /// Notes how it ended. Of its output only what waits already is still taken: something that
    /// it left behind may write for ever.
    pub(crate) fn has_ended(&self, exit: Exit) {
        *self.ended() = Some((SystemClock.now(), exit));
        self.over.cancel();
    }

    /// Where the output begins that came at this time or later, in milliseconds since 1970.
    fn since(&self, time: i64) -> u64 {
        lock(&self.times).since(time, self.output.end())
    }

    fn status(&self) -> EntrypointStatus {
        let ended = *self.ended();
        EntrypointStatus {
            argv: self.argv.clone(),
            running: ended.is_none(),
            exit_code: ended.map(|(_, exit)| exit.code().into()),
            started_at: self.started_at,
            finished_at: ended.map(|(at, _)| at),
        }
    }

    fn ended(&self) -> MutexGuard<'_, Option<(Timestamp, Exit)>> {
        lock(&self.ended)
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One output of the entrypoint and where it goes.
struct Copy {
    pipe: Receiver,
    output: Arc<Retained>,
    times: Arc<Mutex<Times>>,
    outlet: Option<Outlet>,
}

impl Copy {
    async fn until(self, over: CancellationToken) {
        loop {
            tokio::select! {
                ready = self.pipe.readable() => if ready.is_err() { return },
                () = over.cancelled() => break,
            }
            let mut bytes = vec![0; READ];
            match self.pipe.try_read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
                Ok(length) => self.pass(bytes, length).await,
            }
        }
        let mut waiting = rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0);
        while waiting > 0 {
            let mut bytes = vec![0; READ];
            // Without asking the event loop, which may not have heard of them yet.
            let Ok(length @ 1..) = rustix::io::read(&self.pipe, &mut bytes) else { return };
            waiting = waiting.saturating_sub(length as u64);
            self.pass(bytes, length).await;
        }
    }

    async fn pass(&self, mut bytes: Vec<u8>, length: usize) {
        bytes.truncate(length);
        let now = SystemClock.now().as_millisecond();
        lock(&self.times).note(now, self.output.end());
        let bytes = self.output.write(bytes).await;
        if let Some(outlet) = &self.outlet {
            outlet.write(bytes).await;
        }
    }
}
