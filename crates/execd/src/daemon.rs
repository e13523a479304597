use std::{future::pending, sync::Arc, time::Duration};

use osb_core::Token;
use rustix::process::{Pid, Signal, getpid, set_child_subreaper};
use tokio::{
    signal::unix::{self as children, SignalKind, signal},
    sync::Semaphore,
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    boot::{self, First, Instructions, Listen, Start, StartError},
    code::{self, Ahead, Contexts, Door},
    command::{Commands, Settings},
    entrypoint::{Entrypoint, Outlets, Process},
    environment::Environment,
    isolated::{self, Isolation},
    log::{Level, Log},
    metrics::Meter,
    outlet::{Flushed, Outlet},
    practice,
    proxy::Proxy,
    queue::Room,
    reaper::Reaper,
    rest::Rest,
    routes,
    serve::Listener,
    session::Sessions,
    signals::{Signals, asks_to_end},
    terminal::Terminals,
};

/// How long streams may take to tell that their commands were killed.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How many may watch files at the same time.
const WATCHES: usize = 64;

/// What every request can reach.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) token: Option<Token>,
    pub(crate) environment: Environment,
    /// How many more may watch files.
    pub(crate) watches: Arc<Semaphore>,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) commands: Commands,
    pub(crate) sessions: Sessions,
    pub(crate) contexts: Contexts,
    /// For what waits to be run in sessions and contexts.
    pub(crate) room: Room,
    pub(crate) meter: Meter,
    pub(crate) entrypoint: Option<Entrypoint>,
    pub(crate) log: Log,
    pub(crate) terminals: Terminals,
    pub(crate) isolation: Isolation,
    pub(crate) proxy: Proxy,
    pub(crate) rest: Rest,
    /// Everything that runs beside the accept loop.
    pub(crate) tasks: TaskTracker,
    /// No more requests are taken, and endless answers end.
    pub(crate) ending: CancellationToken,
}

impl Daemon {
    /// One that everybody may call, with nothing in it.
    pub(crate) fn bare(environment: Environment, meter: Meter) -> Self {
        Self {
            token: None,
            environment,
            watches: Arc::new(Semaphore::new(WATCHES)),
            reaper: Arc::default(),
            commands: Commands::new(Settings::default()),
            sessions: Sessions::default(),
            contexts: Contexts::default(),
            room: Room::default(),
            meter,
            entrypoint: None,
            log: Log::new(Level::Nothing, None),
            terminals: Terminals::default(),
            isolation: Isolation::new(isolated::Source::Nobody),
            proxy: Proxy::new(),
            rest: Rest::default(),
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
        }
    }

    /// Goes on with what another one has started, which served nobody.
    fn after(self, other: &Self) -> Self {
        Self {
            reaper: Arc::clone(&other.reaper),
            contexts: other.contexts.handed_over(),
            room: other.room.clone(),
            tasks: other.tasks.clone(),
            ending: other.ending.clone(),
            ..self
        }
    }
}

/// Serves until the entrypoint ends or, without one, a signal asks for the end; the result is the
/// exit code.
pub async fn run(instructions: Instructions) -> Result<u8, StartError> {
    let mut children = signal(SignalKind::child()).map_err(StartError::Runtime)?;
    let mut signals = Signals::hear().map_err(StartError::Runtime)?;
    let routes = routes::table();
    let door = Door::open();
    if instructions.come_later() {
        drop(practice::answer(&routes, &mut children).await);
    }
    // All that takes time and needs no instructions is done by now. Nothing else runs in this
    // event loop yet, so it may be held up.
    let (start, early) = match instructions.wait()? {
        First::Start(start) => (*start, None),
        First::Ahead(ahead, rest) => {
            let osb_core::agent::Ahead { code, env, workdir, user } = *ahead;
            let environment = boot::environment(env, workdir, user, None);
            let early = Arc::new(Daemon::bare(environment, Meter::found()));
            let waiting = rest.go_on(early.contexts.prepare(&early, Ahead::asked(&code)));
            let start = tokio::select! {
                start = waiting => start?,
                never = reap(&mut children, &early.reaper) => never,
                never = early.reaper.keep_starts_moving() => never,
            };
            (start, Some(early))
        }
    };
    let Start {
        listen,
        token,
        environment,
        entrypoint,
        output,
        stop_signal,
        commands,
        meter,
        isolation,
        grace,
        log_level,
        log_file,
    } = start;
    let is_session = matches!(listen, Listen::Channel(_));
    if !getpid().is_init() {
        // What commands leave behind comes to us as it would to the first process.
        set_child_subreaper(Some(getpid())).map_err(|error| StartError::Runtime(error.into()))?;
    }
    let listener = Listener::bind(listen).await?;
    let mut flushed = Vec::new();
    let mut outlet = |opened: std::io::Result<Option<(Outlet, Flushed)>>| {
        let opened = opened.map_err(StartError::Outlet)?;
        Ok(opened.map(|(outlet, done)| {
            flushed.push(done);
            outlet
        }))
    };
    let stdout = match entrypoint {
        Some(_) => outlet(Outlet::to(rustix::stdio::stdout()))?,
        None => None,
    };
    let stderr = outlet(Outlet::to(rustix::stdio::stderr()))?;
    let log = match log_file {
        Some(file) => outlet(Outlet::into(file).map(Some))?,
        None => stderr.clone(),
    };

    let bare = Daemon::bare(environment, meter);
    let bare = match &early {
        Some(early) => bare.after(early),
        None => bare,
    };
    drop(early);
    let daemon = Arc::new(Daemon {
        token,
        commands: Commands::new(commands),
        entrypoint: entrypoint.map(|argv| Entrypoint::new(argv, output)),
        log: Log::new(log_level, log),
        isolation: Isolation::new(isolation),
        ..bare
    });
    let door = door.said_in(&daemon.environment);
    let outlets = Outlets { stdout, stderr };
    let reaping = reap(&mut children, &daemon.reaper);
    let idle = code::idle_limit(&daemon.environment);
    let ahead = if is_session { Ahead::default() } else { Ahead::said_in(&daemon.environment) };
    let serving = listener.serve(Arc::clone(&daemon), routes.with_state(Arc::clone(&daemon)));
    let living = async {
        // Whoever is served finds them.
        daemon.contexts.begin(&daemon, ahead).await;
        let over = tokio::select! {
            // An isolated session ends when whoever made it says so, not by what runs in it.
            over = life(&daemon, outlets, &mut signals, stop_signal), if !is_session => over,
            () = serving => Over::of(0),
        };
        // Nobody listens from here on.
        if over.is_ordered {
            // Nobody waits for the rest either.
            daemon.reaper.signal_all(Signal::KILL);
        } else {
            end(&daemon, grace, &mut signals).await;
        }
        over.code
    };
    let code = tokio::select! {
        code = living => code,
        never = reaping => never,
        never = daemon.reaper.keep_starts_moving() => never,
        never = daemon.rest.keep() => never,
        never = door.keep() => never,
        never = daemon.contexts.let_rest(&daemon, idle) => never,
    };
    drop(daemon);
    let all_flushed = async {
        for done in flushed {
            // It is done, or nobody reads any more.
            let _ = done.await;
        }
    };
    tokio::select! {
        () = all_flushed => {}
        () = sleep(LAST_WORDS) => {}
    }
    Ok(code)
}

/// Takes all children that have ended, for ever.
async fn reap<Never>(children: &mut children::Signal, reaper: &Reaper) -> Never {
    while children.recv().await.is_some() {
        reaper.reap();
    }
    pending().await
}

/// How a life ended.
#[derive(Debug, Clone, Copy)]
struct Over {
    /// The exit code.
    code: u8,
    /// Whether whoever runs the sandbox has ordered it.
    is_ordered: bool,
}

impl Over {
    fn of(code: u8) -> Self {
        Self { code, is_ordered: false }
    }
}

/// Resolves when there is no reason to go on. What is sent to execd meanwhile is for the entrypoint,
/// which may take as long as it likes to end: whoever asked it to can kill us. Without one, it is for us.
async fn life(
    daemon: &Arc<Daemon>,
    outlets: Outlets,
    signals: &mut Signals,
    stop_signal: Option<Signal>,
) -> Over {
    let Some(entrypoint) = &daemon.entrypoint else {
        rest(daemon, signals).await;
        return Over::of(0);
    };
    if entrypoint.is_idle() {
        rest(daemon, signals).await;
        return Over { code: 0, is_ordered: stop_signal.is_some() };
    }
    let Process { leader, exited } = match entrypoint.start(daemon, outlets).await {
        Ok(process) => process,
        Err(failure) => return Over::of(failure.report()),
    };
    daemon
        .log
        .write(Level::Info, format_args!("the entrypoint runs as process {}", leader.as_raw_pid()));
    let mut is_ordered = false;
    let exit = tokio::select! {
        exit = exited => exit,
        never = forward(daemon, leader, signals, stop_signal, &mut is_ordered) => never,
    };
    entrypoint.has_ended(exit);
    daemon.log.write(Level::Info, format_args!("the entrypoint ended: {exit:?}"));
    Over { code: exit.code(), is_ordered }
}

/// Waits until somebody asks for the end.
async fn rest(daemon: &Daemon, signals: &mut Signals) {
    let signal = signals.end().await;
    daemon.log.write(Level::Info, format_args!("asked to end by signal {}", signal.as_raw()));
}

async fn forward<Never>(
    daemon: &Daemon,
    leader: Pid,
    signals: &mut Signals,
    stop_signal: Option<Signal>,
    is_ordered: &mut bool,
) -> Never {
    loop {
        let signal = match (signals.next().await, stop_signal) {
            (Signal::TERM, Some(stop)) => {
                *is_ordered = true;
                stop
            }
            (signal, _) => signal,
        };
        if asks_to_end(signal) {
            daemon.log.write(
                Level::Info,
                format_args!("signal {} is for the entrypoint", signal.as_raw()),
            );
        }
        daemon.reaper.signal_group(leader, signal);
    }
}

/// Asks all that runs to end, and kills what has not after the grace, or when asked once more.
/// Streams tell how their commands ended.
async fn end(daemon: &Daemon, grace: Duration, signals: &mut Signals) {
    daemon.ending.cancel();
    daemon.tasks.close();
    daemon.reaper.signal_all(Signal::TERM);
    tokio::select! {
        () = daemon.tasks.wait() => return,
        () = sleep(grace) => {}
        _ = signals.end() => {}
    }
    daemon.reaper.signal_all(Signal::KILL);
    tokio::select! {
        () = daemon.tasks.wait() => {}
        () = sleep(LAST_WORDS) => {}
    }
}
