use std::{
    future::pending,
    io,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use osb_api::execd::Event;
use rustix::process::Signal;
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, interval, timeout},
};

use super::{
    cell::{Cell, Executor, GRACE, Loss, OUTPUT, POLITE, not_begun, pass, ran_too_long},
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

/// How often it is interrupted: it may not have begun the first time.
const LOOK: Duration = Duration::from_millis(250);

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
    lost: Option<Loss>,
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
        if let Some(loss) = self.lost.take() {
            Executor::Interpreter.is_new(loss).frame(frames);
        }
        Ok(())
    }

    /// Does without the process, which ends if it has not.
    fn lose(&mut self) {
        self.pid.store(0, Ordering::Relaxed);
        self.process = None;
        self.lost = Some(Loss::Ended);
    }

    /// Ends what does not end by itself.
    async fn kill(&mut self) {
        let process = self.process.take();
        self.lose();
        if let Some(mut process) = process {
            process.family().kill().await;
            drop(timeout(GRACE, process.ended()).await);
        }
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
                if said.is_shown() && self.driver.waits() {
                    process.say(&said::passed_on());
                }
            }
        }
        if failed {
            self.abandon().await;
        }
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

impl Host for Interpreter {
    type Text = Cell;

    /// What it prints or shows between cells is for nobody.
    async fn tend(&mut self) {
        let Some(process) = &mut self.process else { return pending().await };
        let full = process.happening(None).await || !process.told.is_empty();
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
                    self.lost = Some(Loss::Idle);
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
        let language = self.driver.language();
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
        let (mut finished, mut is_lost, mut has_failed) = (false, false, false);
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
            while let Some(said) = process.told.pop_front() {
                finished |= said == Said::Finished;
                is_lost |= said == Said::Nonsense;
                if said.is_shown() && self.driver.waits() {
                    process.say(&said::passed_on());
                }
                // That it failed is to be known in any case.
                let is_wanted = matches!(said, Said::Failed(_)) && !has_failed;
                has_failed |= is_wanted;
                let before = frames.len();
                said.frame(now(), &mut frames);
                if !budget.covers(frames.len() - before) && !is_wanted {
                    frames.truncate(before);
                }
            }
            if let Some(notice) = budget.notice() {
                Event::stderr(notice, now()).frame(&mut frames);
            }
            pass(client, &mut frames, goes_on).await?;
        }
        if is_lost {
            // Whoever cannot be understood cannot be told what to do either.
            self.kill().await;
            let how = "killed, because it said what nobody understands";
            Executor::Interpreter.is_gone(language, how).frame(&mut frames);
        } else if let Some(exit) = process.exit.filter(|_| !finished) {
            Executor::Interpreter.has_died(language, exit).frame(&mut frames);
            self.lose();
        } else {
            outcome(Exit::Code(0), began).frame(&mut frames);
        }
        pass(client, &mut frames, goes_on).await
    }

    /// A cell that is interrupted keeps the state, as long as it ends.
    async fn give_up(&mut self, why: End, began: Instant, frames: &mut Vec<u8>, most: usize) {
        let language = self.driver.language();
        let Some(process) = &mut self.process else { return not_begun(why, began).frame(frames) };
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
                    // Before it is there, it would only die of it.
                    _ = look.tick() => if process.has_spoken { process.signal_group(Signal::INT) },
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
            ran_too_long(limit).frame(frames);
        }
        if let Some(exit) = exit {
            Executor::Interpreter.has_died(language, exit).frame(frames);
            self.lose();
        } else if obeyed {
            outcome(Exit::Code(0), began).frame(frames);
        } else {
            self.kill().await;
            let how = "killed, because its cell did not end when it was interrupted";
            Executor::Interpreter.is_gone(language, how).frame(frames);
        }
    }

    /// It knew nothing of which anybody has heard.
    async fn abandon(&mut self) {
        self.kill().await;
        self.lost = None;
    }

    async fn end(mut self) {
        self.kill().await;
    }
}
