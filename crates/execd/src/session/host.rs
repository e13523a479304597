use std::{
    collections::{BTreeMap, HashSet},
    ffi::OsString,
    future::pending,
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use axum::body::Bytes;
use rustix::process::Signal;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::spawn_blocking,
    time::{Instant, interval, timeout},
};

use super::{
    driver::{self, EXIT_TRAP, quoted},
    report::{Report, Reports},
    state::{ExitTrap, State},
};
use crate::{
    daemon::Daemon,
    driven::{Birth, Driven},
    env,
    events::{self, outcome},
    family::{self, Child},
    output::{Pace, READ},
    program::NotStarted,
    queue::{self, Broken, End, Wait},
    reaper::Exit,
};
use osb_api::execd::Event;

/// How long a shell may take to tell its state, or to take one over.
const SETTLE: Duration = Duration::from_secs(10);

/// How long a run has to give up once all that it started is killed.
const GRACE: Duration = Duration::from_secs(1);

/// How long what a run started has to end by itself.
const POLITE: Duration = Duration::from_secs(3);

/// How often to look for what an ending run has started since.
const LOOK: Duration = Duration::from_millis(100);

/// One bash, which evaluates one text after the other.
type Shell = Driven<Reports>;

/// The shell of a session, and what is needed to go on when it ends.
#[derive(Debug)]
pub(crate) struct Host {
    daemon: Arc<Daemon>,
    birth: Birth,
    shell: Option<Shell>,
    /// The number of the last text that it was given.
    number: u32,
    /// The shell has told all of its state and waits for a text.
    settled: bool,
    /// Whose state is being told.
    telling: Telling,
    kept: Option<Kept>,
    room: Arc<Semaphore>,
    cut: Cut,
    /// What the user wants to happen at the end of the shell.
    user_exit: Vec<u8>,
    /// The driver's EXIT trap is not in its place.
    rearm: bool,
    /// The environment as the session knows it from outside.
    seen: BTreeMap<OsString, OsString>,
    run: Option<Running>,
}

/// The run in progress.
#[derive(Debug)]
struct Running {
    /// Children of the shell that are older than the run.
    spared: HashSet<Child>,
    ended: Option<Exit>,
    /// The shell left before it took the text.
    untaken: bool,
}

#[derive(Debug, Default, Clone, Copy)]
enum Telling {
    #[default]
    Nothing,
    After(u32),
    Ended,
}

#[derive(Debug)]
struct Kept {
    state: State,
    _room: OwnedSemaphorePermit,
}

/// How the output of a shell becomes events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Lines,
    /// As it comes.
    Verbatim,
}

/// What to evaluate.
#[derive(Debug)]
pub(crate) struct Text {
    pub(super) command: String,
    pub(super) cwd: Option<PathBuf>,
    /// What a command would start with now.
    pub(super) env: BTreeMap<OsString, OsString>,
}

impl Wait for Text {
    fn size(&self) -> usize {
        let variables = self.env.iter().map(|(name, value)| name.len() + value.len());
        self.command.len() + variables.sum::<usize>()
    }
}

impl Text {
    /// A command with what it would start with now.
    pub(crate) fn of(daemon: &Daemon, command: String) -> Self {
        Self { command, cwd: None, env: daemon.environment.for_command(&BTreeMap::new()) }
    }
}

impl Host {
    /// Starts the shell of a new session, as [`Driven::start`]. Its states are kept as far as there
    /// is room.
    pub(super) fn start(
        daemon: &Arc<Daemon>,
        birth: Birth,
        room: Arc<Semaphore>,
        cut: Cut,
    ) -> Result<Self, NotStarted> {
        let shell = start(daemon, birth.clone(), cut)?;
        Ok(Self {
            daemon: Arc::clone(daemon),
            seen: birth.env.clone(),
            birth,
            shell: Some(shell),
            number: 0,
            settled: false,
            telling: Telling::Nothing,
            kept: None,
            room,
            cut,
            user_exit: Vec::new(),
            rearm: false,
            run: None,
        })
    }
}

impl queue::Host for Host {
    type Text = Text;

    /// What the shell prints between runs is for nobody.
    async fn tend(&mut self) {
        match &mut self.shell {
            Some(shell) if shell.exit.is_none() => {
                let full = shell.happening(None).await;
                self.note();
                if self.settled {
                    Pace::Leisurely.rest(full).await;
                }
            }
            _ => pending().await,
        }
    }

    async fn run(
        &mut self,
        text: &Text,
        client: &mpsc::Sender<Bytes>,
        began: Instant,
        goes_on: bool,
    ) -> Result<(), Broken> {
        self.run = None;
        self.ready().await.map_err(Broken::Host)?;
        let script = self.script(text);
        let shell = self.shell.as_mut().ok_or_else(|| Broken::Host(no_shell()))?;
        self.settled = false;
        // Whatever was left without an end belongs to nobody.
        shell.finish(&mut Vec::new());
        let spared = family::children(shell.pid);
        self.run = Some(Running { spared, ended: None, untaken: false });
        self.number = next(self.number);
        shell.say(&driver::message(self.number, &script));
        let mut ping = events::pings(began);
        let exit = loop {
            // Room first, then reading: the rest waits in the pipe, and the shell with it.
            let room = client.reserve().await.ok();
            if room.is_none() && !goes_on {
                return Err(Broken::Gone);
            }
            let mut frames = Vec::new();
            let shell = self.shell.as_mut().ok_or_else(|| Broken::Host(no_shell()))?;
            tokio::select! {
                _ = shell.happening(room.is_some().then_some(&mut frames)) => {}
                _ = ping.tick() => Event::ping(events::now()).frame(&mut frames),
            }
            if let Some(room) = room.filter(|_| !frames.is_empty()) {
                room.send(Bytes::from(frames));
            }
            if let Some(exit) = self.note() {
                break exit;
            }
        };
        let mut left = None;
        let mut frames = Vec::new();
        while let Some(shell) = &mut self.shell
            && !shell.drain(&mut left, &mut frames, READ)
        {
            let chunk = Bytes::from(std::mem::take(&mut frames));
            client.send(chunk).await.map_err(|_| Broken::Gone)?;
        }
        outcome(exit, began).frame(&mut frames);
        client.send(Bytes::from(frames)).await.map_err(|_| Broken::Gone)
    }

    /// With the run ends what it has started that is still below the shell. Jobs that earlier runs
    /// have left in the background stay. If it is interrupted, programs have a moment.
    async fn give_up(&mut self, why: End, began: Instant, frames: &mut Vec<u8>, most: usize) {
        let polite = why == End::Interrupted;
        self.end_run(polite, frames, most).await;
        outcome(Exit::Signal(if polite { 15 } else { 9 }), began).frame(frames);
    }

    async fn end(mut self) {
        if let Some(mut shell) = self.shell.take() {
            shell.family().kill().await;
            drop(timeout(GRACE, shell.ended()).await);
        }
    }
}

impl Host {
    async fn end_run(&mut self, polite: bool, frames: &mut Vec<u8>, most: usize) {
        let (Some(mut run), Some(shell)) = (self.run.take(), &mut self.shell) else { return };
        if run.ended.is_some() || shell.exit.is_some() {
            return;
        }
        let offspring = shell.offspring(std::mem::take(&mut run.spared));
        self.run = Some(run);
        let mut kill_at = Instant::now();
        // First the shell, which hears of it when its program ends, and then the program.
        if shell.has_all() {
            shell.signal(Signal::STKFLT);
        } else {
            // The next shell would take the rest of the text for something else.
            shell.signal(Signal::KILL);
        }
        if polite {
            kill_at += POLITE;
            offspring.ask().await;
        } else {
            offspring.kill().await;
        }
        let ending = async {
            let mut look = interval(LOOK);
            loop {
                let mut output = Vec::new();
                let Some(shell) = &mut self.shell else { return };
                tokio::select! {
                    _ = shell.happening(Some(&mut output)) => {}
                    now = look.tick() => if now >= kill_at {
                        offspring.kill().await;
                    },
                }
                if frames.len() + output.len() <= most {
                    frames.append(&mut output);
                }
                if self.note().is_some() {
                    return;
                }
            }
        };
        let grace = kill_at.saturating_duration_since(Instant::now()) + GRACE;
        let ended = timeout(grace, ending).await.is_ok();
        let untaken = self.run.take().is_some_and(|run| run.untaken);
        let Some(shell) = &mut self.shell else { return };
        if shell.exit.is_none() {
            // Only a program that the shell waited for had its moment; jobs have not.
            offspring.kill().await;
        }
        if !ended || untaken {
            shell.signal(Signal::KILL);
            // One that is stuck in the kernel goes when it comes out; its signal is pending.
            drop(timeout(GRACE, shell.ended()).await);
        }
        shell.drain(&mut None, frames, most);
    }

    /// Waits for a shell that has told its state, if need be a new one.
    async fn ready(&mut self) -> Result<(), String> {
        for _ in 0..2 {
            if self.shell.as_ref().is_none_or(|shell| shell.exit.is_some()) {
                self.begin_again().await.map_err(|error| error.to_string())?;
            }
            let settling = async {
                while !self.settled && self.shell.as_ref().is_some_and(|it| it.exit.is_none()) {
                    queue::Host::tend(self).await;
                }
            };
            let in_time = timeout(SETTLE, settling).await.is_ok();
            if in_time && self.settled {
                return Ok(());
            }
            if let Some(shell) = self.shell.take() {
                // Not all that comes from it, which may be jobs that work.
                shell.signal(Signal::KILL);
                self.daemon.tasks.spawn(bury(shell));
            }
            // A state that no shell can live with is worse than none.
            self.kept = None;
        }
        Err(no_shell())
    }

    /// Starts another shell, with the last state that is known.
    async fn begin_again(&mut self) -> Result<(), NotStarted> {
        self.settled = false;
        self.telling = Telling::Nothing;
        self.rearm = false;
        let mut birth = self.birth.clone();
        if self.kept.is_some() {
            // All else comes with the state.
            birth.env.retain(|name, _| name == env::PATH);
            birth.cwd = PathBuf::from("/");
        } else {
            self.seen = birth.env.clone();
        }
        let (daemon, cut) = (Arc::clone(&self.daemon), self.cut);
        let started = spawn_blocking(move || start(&daemon, birth, cut)).await;
        self.shell = Some(started.map_err(io::Error::from)??);
        self.number = 0;
        self.restore();
        Ok(())
    }

    /// Gives the last state that is known to a shell that has just begun.
    fn restore(&mut self) {
        let (Some(shell), Some(kept)) = (&mut self.shell, &self.kept) else { return };
        let mut text = kept.state.restoring();
        if !self.user_exit.is_empty() {
            text.extend(b"__execd_user_exit=");
            text.extend(quoted(&self.user_exit));
        }
        self.settled = false;
        self.number = next(self.number);
        shell.say(&driver::message(self.number, &text));
    }

    /// Looks at all that the shell has told. Returns how the last text ended, if that is known now.
    fn note(&mut self) -> Option<Exit> {
        let mut end = None;
        while let Some(report) = self.shell.as_mut().and_then(|shell| shell.told.pop_front()) {
            let last = self.number;
            match report {
                Report::Done { number, status } => {
                    self.telling = Telling::After(number);
                    if number == last {
                        end = Some(Exit::Code(status));
                    }
                }
                Report::Ended { number, status } => {
                    self.telling = Telling::Ended;
                    self.settled = false;
                    self.user_exit.clear();
                    end = Some(Exit::Code(status));
                    if let Some(run) = &mut self.run {
                        run.untaken = number != last;
                    }
                }
                Report::State(state) => match std::mem::take(&mut self.telling) {
                    Telling::After(number) if number == last => {
                        self.keep(state);
                        self.settled = true;
                    }
                    Telling::Ended => {
                        self.keep(state);
                        self.rearm = false;
                        self.restore();
                    }
                    Telling::After(_) | Telling::Nothing => {}
                },
            }
        }
        let died = self.shell.as_ref().and_then(|shell| shell.exit);
        let end = end.or(died);
        if let Some(run) = &mut self.run {
            run.ended = run.ended.or(end);
        }
        end
    }

    /// Keeps a state, if it is one and there is room for it.
    fn keep(&mut self, state: Option<State>) {
        let Some(mut state) = state else { return };
        state.leave_functions(self.kept.as_ref().map(|kept| &kept.state));
        if let ExitTrap::Users(action) = state.exit_trap() {
            self.user_exit = action;
            self.rearm = true;
        }
        let kibibytes = u32::try_from(state.size() >> 10).unwrap_or(u32::MAX).saturating_add(1);
        if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(kibibytes) {
            self.kept = Some(Kept { state, _room: room });
        }
    }

    /// What the shell evaluates for a run: what has changed around the session, then the text.
    fn script(&mut self, text: &Text) -> Vec<u8> {
        let mut script = Vec::new();
        if std::mem::take(&mut self.rearm) {
            script.extend(b"__execd_user_exit=");
            script.extend(quoted(&self.user_exit));
            script.extend(b"; \\builtin trap ");
            script.extend(quoted(EXIT_TRAP));
            script.extend(b" EXIT; ");
        }
        for (name, value) in &text.env {
            let changed = self.seen.get(name) != Some(value);
            if let Some(name) = name.to_str().filter(|name| changed && is_name(name)) {
                script.extend(b"\\builtin declare -x ");
                script.extend(name.as_bytes());
                script.push(b'=');
                script.extend(quoted(value.as_encoded_bytes()));
                script.extend(b"; ");
            }
        }
        self.seen.clone_from(&text.env);
        if let Some(cwd) = &text.cwd {
            script.extend(b"\\builtin cd -- ");
            script.extend(quoted(cwd.as_os_str().as_encoded_bytes()));
            script.extend(b" && ");
        }
        let mut command = text.command.as_bytes().to_vec();
        if self.kept.as_ref().is_some_and(|kept| kept.state.traces()) {
            command.splice(..0, b"\\builtin set -x; ".iter().copied());
        }
        if script.is_empty() {
            return command;
        }
        script.extend(b"\\builtin eval ");
        script.extend(quoted(&command));
        script
    }
}

fn start(daemon: &Arc<Daemon>, birth: Birth, cut: Cut) -> Result<Shell, NotStarted> {
    let mut shell = Shell::start(daemon, driver::argv(), birth)?;
    if cut == Cut::Verbatim {
        shell.be_verbatim();
    }
    Ok(shell)
}

/// Waits for a shell that was killed, so that dropping it kills nothing else.
async fn bury(mut shell: Shell) {
    drop(timeout(SETTLE, shell.ended()).await);
}

fn next(number: u32) -> u32 {
    number.wrapping_add(1).max(1)
}

fn is_name(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn no_shell() -> String {
    "the shell of the session does not start".to_owned()
}
