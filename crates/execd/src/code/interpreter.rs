use std::{
    future::pending,
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use osb_api::execd::{Event, Failure, enames};
use rustix::process::Signal;
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, interval, timeout},
};

use super::{
    driver::Driver,
    said::{self, Messages, Said},
};
use crate::{
    daemon::Daemon,
    driven::{Birth, Driven},
    events::{self, now, outcome},
    output::{Budget, Pace, READ},
    program::NotStarted,
    queue::{Broken, End, Host},
    reaper::Exit,
};

/// The most output of one cell; the rest is dropped.
const OUTPUT: u64 = 256 << 20;

/// How long a cell has to end once it is interrupted.
const POLITE: Duration = Duration::from_secs(3);

/// How often it is interrupted: it may not have begun the first time.
const LOOK: Duration = Duration::from_millis(250);

/// How long to wait for what was killed.
const GRACE: Duration = Duration::from_secs(1);

const STARTED_ANEW: &str = "[the interpreter was started anew: what it knew is gone]\n";

const WAS_IDLE: &str = "[the interpreter was ended, for it had nothing to do for long, and started anew: what it knew is gone]\n";

/// A program that executes one cell after the other, and remembers.
#[derive(Debug)]
pub(super) struct Interpreter {
    daemon: Arc<Daemon>,
    driver: Driver,
    birth: Birth,
    process: Option<Driven<Messages>>,
    /// Its number, for whoever wants to know how it fares; 0 if there is none.
    pid: Arc<AtomicI32>,
    /// What to say of the last one, which has ended, if it knew something.
    lost: Option<&'static str>,
}

/// What to do.
#[derive(Debug)]
pub(super) enum Cell {
    /// Executes it.
    Code(String),
    /// Has these modules, and all that it may need, ready.
    Import(Vec<String>),
    /// Ends the process; the next code begins with another.
    Rest,
    /// Belongs to another daemon from here on, and is as if it had begun with this.
    Become(Arc<Daemon>, Birth),
}

impl Interpreter {
    /// Starts one. This waits for the program to be read, so it is for a thread that may wait.
    pub(super) fn start(
        daemon: &Arc<Daemon>,
        driver: Driver,
        birth: Birth,
        pid: Arc<AtomicI32>,
    ) -> Result<Self, NotStarted> {
        let process = start(daemon, driver, &birth)?;
        let daemon = Arc::clone(daemon);
        let mut interpreter = Self { daemon, driver, birth, process: None, pid, lost: None };
        interpreter.have(process);
        Ok(interpreter)
    }

    fn have(&mut self, process: Driven<Messages>) {
        self.pid.store(process.pid.as_raw_pid(), Ordering::Relaxed);
        self.process = Some(process);
    }

    /// Starts another one if need be, which is said in `frames`.
    async fn ready(&mut self, frames: &mut Vec<u8>) -> Result<(), NotStarted> {
        if let Some(process) = &mut self.process {
            if !process.has_ended() {
                return Ok(());
            }
            self.lose();
        }
        let (daemon, driver, birth) = (Arc::clone(&self.daemon), self.driver, self.birth.clone());
        let started = spawn_blocking(move || start(&daemon, driver, &birth)).await;
        self.have(started.map_err(io::Error::from)??);
        if let Some(notice) = self.lost.take() {
            Event::stderr(notice, now()).frame(frames);
        }
        Ok(())
    }

    /// Does without the process, which ends if it has not.
    fn lose(&mut self) {
        self.pid.store(0, Ordering::Relaxed);
        self.process = None;
        self.lost = Some(STARTED_ANEW);
    }

    /// Ends what does not end by itself.
    async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.family().kill().await;
            drop(timeout(GRACE, process.ended()).await);
        }
        self.lose();
    }

    /// Has it do something of which nobody hears. It begins anew if that fails.
    async fn tell(&mut self, message: &[u8]) {
        let Some(process) = &mut self.process else { return };
        process.say(message);
        let (mut done, mut failed) = (false, false);
        while !done && !failed {
            process.happening(None).await;
            failed = process.exit.is_some();
            while let Some(said) = process.told.pop_front() {
                done |= said == Said::Finished;
                failed |= matches!(said, Said::Failed(_) | Said::Nonsense);
            }
        }
        if failed {
            self.kill().await;
            // It knew nothing.
            self.lost = None;
        }
    }

    fn has_died(&self, exit: Exit) -> Failure {
        let how = match exit {
            Exit::Signal(9) => "signal: killed, as happens if memory runs out".to_owned(),
            Exit::Code(_) | Exit::Signal(_) => {
                events::trace(exit).unwrap_or_else(|| "exit status 0".to_owned())
            }
        };
        self.is_gone(&how)
    }

    fn is_gone(&self, how: &str) -> Failure {
        let name = self.driver.language().name();
        let evalue = format!(
            "the {name} interpreter has ended ({how}): what it knew is gone, and the next cell starts it anew"
        );
        Failure { ename: enames::INTERPRETER.to_owned(), evalue, traceback: Vec::new() }
    }
}

fn start(
    daemon: &Arc<Daemon>,
    driver: Driver,
    birth: &Birth,
) -> Result<Driven<Messages>, NotStarted> {
    let mut missing = None;
    for argv in driver.commands() {
        match Driven::start(daemon, argv, birth.clone()) {
            Ok(mut process) => {
                process.be_verbatim();
                return Ok(process);
            }
            Err(error) if error.kind == io::ErrorKind::NotFound => missing = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(missing.unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound).into()))
}

/// Sends events on, if there are any and somebody is there.
async fn pass(
    client: &mpsc::Sender<Bytes>,
    frames: &mut Vec<u8>,
    goes_on: bool,
) -> Result<(), Broken> {
    if frames.is_empty() {
        return Ok(());
    }
    match client.send(Bytes::from(mem::take(frames))).await {
        Err(_) if !goes_on => Err(Broken::Gone),
        _ => Ok(()),
    }
}

impl Host for Interpreter {
    type Text = Cell;

    /// What it prints between cells is for nobody.
    async fn tend(&mut self) {
        let Some(process) = &mut self.process else { return pending().await };
        let full = process.happening(None).await;
        let is_lost = process.told.contains(&Said::Nonsense);
        process.told.clear();
        if is_lost || process.exit.is_some() {
            self.lose();
        }
        Pace::Leisurely.rest(full).await;
    }

    async fn run(
        &mut self,
        cell: &Cell,
        client: &mpsc::Sender<Bytes>,
        began: Instant,
        goes_on: bool,
    ) -> Result<(), Broken> {
        let code = match cell {
            Cell::Code(code) => code,
            Cell::Import(modules) => {
                self.tell(&said::imports(modules)).await;
                return Ok(());
            }
            Cell::Rest => {
                if self.process.is_some() {
                    self.kill().await;
                    self.lost = Some(WAS_IDLE);
                }
                return Ok(());
            }
            Cell::Become(daemon, birth) => {
                self.daemon = Arc::clone(daemon);
                self.birth = birth.clone();
                self.lost = None;
                self.tell(&said::surroundings(birth)).await;
                return Ok(());
            }
        };
        let mut frames = Vec::new();
        self.ready(&mut frames).await.map_err(|error| Broken::Host(error.to_string()))?;
        let Some(process) = &mut self.process else { return Err(Broken::Gone) };
        pass(client, &mut frames, goes_on).await?;
        // Whatever was left belongs to nobody.
        process.finish(&mut Vec::new());
        process.told.clear();
        let budget = Arc::new(Budget::new(OUTPUT));
        process.be_within(&budget);
        process.say(&said::cell(code));
        let mut ping = events::pings(began);
        let (mut finished, mut is_lost) = (false, false);
        while !finished && !is_lost && process.exit.is_none() {
            // Room first, then reading: the rest waits in the pipe, and the cell with it.
            let room = client.reserve().await.ok();
            if room.is_none() && !goes_on {
                return Err(Broken::Gone);
            }
            tokio::select! {
                _ = process.happening(room.is_some().then_some(&mut frames)) => {}
                _ = ping.tick() => Event::ping(now()).frame(&mut frames),
            }
            drop(room);
            if !process.told.is_empty() || process.exit.is_some() {
                // All that was printed before something was said comes before it.
                let mut left = None;
                while !process.drain(&mut left, &mut frames, READ) {
                    pass(client, &mut frames, goes_on).await?;
                }
            }
            if let Some(notice) = budget.notice() {
                Event::stderr(notice, now()).frame(&mut frames);
            }
            while let Some(said) = process.told.pop_front() {
                finished |= said == Said::Finished;
                is_lost |= said == Said::Nonsense;
                if said.is_shown() && self.driver.waits() {
                    process.say(&said::passed_on());
                }
                said.frame(now(), &mut frames);
            }
            pass(client, &mut frames, goes_on).await?;
        }
        if is_lost {
            // Whoever cannot be understood cannot be told what to do either.
            self.kill().await;
            let failure = self.is_gone("killed, because it said what nobody understands");
            Event::error(failure, now()).frame(&mut frames);
        } else if let Some(exit) = process.exit.filter(|_| !finished) {
            Event::error(self.has_died(exit), now()).frame(&mut frames);
            self.lose();
        } else {
            outcome(Exit::Code(0), began).frame(&mut frames);
        }
        pass(client, &mut frames, goes_on).await
    }

    /// A cell that is interrupted keeps the state, as long as it ends.
    async fn give_up(&mut self, why: End, began: Instant, frames: &mut Vec<u8>, most: usize) {
        let Some(process) = &mut self.process else { return };
        if why == End::Deleted {
            outcome(Exit::Signal(9), began).frame(frames);
            return;
        }
        let mut finished = false;
        let ending = async {
            let mut look = interval(LOOK);
            while !finished && process.exit.is_none() {
                let mut output = Vec::new();
                tokio::select! {
                    _ = process.happening(Some(&mut output)) => {}
                    _ = look.tick() => process.signal_group(Signal::INT),
                }
                if !process.told.is_empty() {
                    process.drain(&mut None, &mut output, most);
                }
                while let Some(said) = process.told.pop_front() {
                    finished |= said == Said::Finished;
                    if said.is_shown() && self.driver.waits() {
                        process.say(&said::passed_on());
                    }
                    said.frame(now(), &mut output);
                }
                if frames.len() + output.len() <= most {
                    frames.append(&mut output);
                }
            }
        };
        let obeyed = timeout(POLITE, ending).await.is_ok();
        let exit = process.exit;
        if let End::Timeout(limit) = why {
            let evalue = format!("the cell ran for longer than {} ms", limit.as_millis());
            let ename = enames::TIMEOUT.to_owned();
            Event::error(Failure { ename, evalue, traceback: Vec::new() }, now()).frame(frames);
        }
        if let Some(exit) = exit {
            Event::error(self.has_died(exit), now()).frame(frames);
            self.lose();
        } else if obeyed {
            outcome(Exit::Code(0), began).frame(frames);
        } else {
            self.kill().await;
            let failure =
                self.is_gone("killed, because its cell did not end when it was interrupted");
            Event::error(failure, now()).frame(frames);
        }
    }

    async fn end(mut self) {
        self.kill().await;
    }
}
