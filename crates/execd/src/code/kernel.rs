//! Jupyter kernels of the image: found by their kernelspecs (`spec`), started with a file that says
//! how to speak with them (`connection`), and spoken with over `ZeroMQ` (`frames`, `peer`, `message`,
//! `channels`). What comes of a cell is in `progress`.
//!
//! All that a kernel says is hostile until it is signed, and of bounded size after.

mod channels;
mod connection;
mod frames;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod message;
mod peer;
mod process;
mod progress;
mod python;
mod spec;

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use osb_api::execd::{Event, Failure, enames};
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, Interval, interval, sleep, sleep_until, timeout, timeout_at},
};

use super::{
    cell::{Cell, Executor, GRACE, Loss, OUTPUT, POLITE, not_begun, pass, ran_too_long},
    language::Language,
};
use crate::{
    daemon::Daemon,
    driven::Birth,
    events::{now, outcome, pings},
    output::{Budget, READ},
    program::NotStarted,
    queue::{Broken, End, Host},
    reaper::Exit,
};
use channels::Heard;
use process::{Process, Unready};
use progress::{Progress, Reply, is_idle};
pub(super) use spec::Spec;

/// How long a kernel may take until it answers.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long a kernel may be silent that listens already, the first time it is started; each further
/// time it is twice that.
const SILENCE: Duration = Duration::from_secs(5);

/// How often a kernel is started that ends before it answers: somebody else may have taken a port.
const TRIES: u32 = 2;

/// How long to wait for the rest of the end of a cell, if all is silent. It may not come: kernels
/// lose it when they are interrupted.
const REST: Duration = Duration::from_secs(2);

/// How often a cell is interrupted: it may not have begun the first time.
const AGAIN: Duration = Duration::from_millis(500);

/// How long a cell may take to end once its kernel has taken the order to end it, before it is
/// asked whether it takes another one. A kernel that does, and has not said how this one ended, has
/// lost more than that: the one of Java executes nothing any more.
const DOUBT: Duration = Duration::from_millis(300);

/// The most that waits for a client. A kernel that is not listened to drops what it has to say.
const HELD: usize = 16 << 20;

/// The most events that are made at once.
const FULL: usize = 4 * READ;

/// How long to wait before a cell is sent again that a kernel has refused because of an error
/// before it, and how often.
const REFUSED: (Duration, u32) = (Duration::from_millis(100), 50);

/// A Jupyter kernel, which is started anew when it has ended.
#[derive(Debug)]
pub(super) struct Kernel {
    daemon: Arc<Daemon>,
    language: Language,
    spec: Arc<Spec>,
    birth: Birth,
    process: Option<Process>,
    /// What has come of the cell in progress.
    progress: Option<Progress>,
    /// Its number, for whoever wants to know how it fares; 0 if there is none.
    pid: Arc<AtomicI32>,
    /// The version that the first one said it has.
    version: Arc<OnceLock<String>>,
    /// The last one knew something, and nobody was told that it is gone.
    lost: Option<Loss>,
}

/// How a cell has come to its end.
enum Ended {
    Replied(Reply),
    /// The kernel is not there any more, or cannot be understood.
    Broken,
}

impl Kernel {
    /// Starts one, which will answer later. This looks at files and waits for the program to be
    /// read, so it is for a thread that may wait.
    pub(super) fn start(
        daemon: &Arc<Daemon>,
        language: Language,
        spec: Spec,
        birth: Birth,
        (pid, version): (Arc<AtomicI32>, Arc<OnceLock<String>>),
    ) -> Result<Self, NotStarted> {
        let birth = spec.birth(birth)?;
        let process = Process::start(daemon, &spec, &birth, SILENCE, &version)?;
        let (daemon, spec) = (Arc::clone(daemon), Arc::new(spec));
        let (process, progress, lost) = (Some(process), None, None);
        let kernel = Self { daemon, language, spec, birth, process, progress, pid, version, lost };
        kernel.tell_pid();
        Ok(kernel)
    }

    fn tell_pid(&self) {
        let pid = self.process.as_ref().map_or(0, |process| process.pid().as_raw_pid());
        self.pid.store(pid, Ordering::Relaxed);
    }

    /// Does without the process, which ends if it has not.
    fn lose(&mut self) {
        if self.process.as_ref().is_some_and(|process| process.knows) {
            self.lost = Some(Loss::Ended);
        }
        self.process = None;
        self.progress = None;
        self.tell_pid();
    }

    /// Ends what does not end by itself.
    async fn kill(&mut self) {
        let mut process = self.process.take();
        if process.as_ref().is_some_and(|process| process.knows) {
            self.lost = Some(Loss::Ended);
        }
        self.lose();
        if let Some(process) = &mut process {
            process.driven.family().kill().await;
            drop(timeout(GRACE, process.driven.ended()).await);
        }
    }

    /// Waits until there is a kernel that answers, and starts another one if need be. Fails with
    /// the reason why there is none.
    async fn ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let mut tries = 0_u32;
        loop {
            if self.process.as_mut().is_none_or(|process| process.driven.has_ended()) {
                self.lose();
                let (daemon, spec) = (Arc::clone(&self.daemon), Arc::clone(&self.spec));
                let (birth, patience) = (self.birth.clone(), SILENCE * 2_u32.pow(tries.min(3)));
                let version = Arc::clone(&self.version);
                let start = move || Process::start(&daemon, &spec, &birth, patience, &version);
                let started = spawn_blocking(start).await;
                let started = started.map_err(|error| NotStarted::from(io::Error::from(error)));
                let started =
                    started.flatten().map_err(|error| self.unready(&error.to_string(), ""))?;
                self.process = Some(started);
                self.tell_pid();
            }
            let Some(process) = &mut self.process else { continue };
            let Err(why) = process.open(deadline).await else { return Ok(()) };
            let errors = process.driven.last_errors();
            self.kill().await;
            tries += 1;
            match why {
                Unready::Ended(_) if tries < TRIES => {}
                Unready::Silent if Instant::now() < deadline => sleep(AGAIN).await,
                Unready::Ended(exit) => {
                    let how = match exit {
                        Exit::Code(code) => format!("it ended with code {code}"),
                        Exit::Signal(signal) => format!("signal {signal} ended it"),
                    };
                    return Err(self.unready(&how, &errors));
                }
                Unready::Silent => {
                    let how = format!("it did not answer within {} s", PATIENCE.as_secs());
                    return Err(self.unready(&how, &errors));
                }
            }
        }
    }

    fn unready(&self, how: &str, errors: &str) -> String {
        let (name, language) = (self.spec.name(), self.language.name());
        let errors = if errors.is_empty() { String::new() } else { format!("\n{errors}") };
        format!(
            "the kernel of {language}, by the kernelspec {name:?}, does not start: {how}{errors}"
        )
    }

    /// As [`Kernel::ready`], while the client sees that it waits.
    async fn ready_for(
        &mut self,
        client: &mpsc::Sender<Bytes>,
        ping: &mut Interval,
        goes_on: bool,
    ) -> Result<Result<(), String>, Broken> {
        let ready = self.ready();
        tokio::pin!(ready);
        loop {
            tokio::select! {
                ready = &mut ready => return Ok(ready),
                _ = ping.tick() => {
                    let mut frames = Vec::new();
                    Event::ping(now()).frame(&mut frames);
                    pass(client, &mut frames, goes_on).await?;
                }
            }
        }
    }

    /// Has a kernel of Python execute something of which nobody hears. It begins anew if that fails.
    async fn tell(&mut self, code: &str) {
        let Some(process) = &mut self.process else { return };
        let told: io::Result<bool> = async {
            process
                .open(Instant::now() + PATIENCE)
                .await
                .map_err(|_| io::ErrorKind::NotConnected)?;
            let id = process.execute_unseen(code)?;
            loop {
                match process.listen(&mut Vec::new()).await? {
                    Some(Heard::Answer(answer)) if answer.parent == id => {
                        return Ok(progress::has_succeeded(&answer));
                    }
                    Some(Heard::LongAnswer) => return Ok(false),
                    _ => {}
                }
            }
        }
        .await;
        if !told.unwrap_or(false) {
            self.abandon().await;
        }
    }

    /// Listens to the kernel and passes on what it says, until the cell has ended.
    async fn attend(
        &mut self,
        client: &mpsc::Sender<Bytes>,
        ping: &mut Interval,
        budget: &Arc<Budget>,
        goes_on: bool,
    ) -> Result<Ended, Broken> {
        let (Some(process), Some(progress)) = (&mut self.process, &mut self.progress) else {
            return Ok(Ended::Broken);
        };
        let mut frames = Vec::new();
        let mut silent_since = Instant::now();
        loop {
            let is_told = frames.is_empty() && !progress.has_news();
            if let Some(reply) = progress.outcome().filter(|_| is_told) {
                return Ok(Ended::Replied(reply));
            }
            let has_room = progress.held() < HELD && frames.len() < FULL;
            tokio::select! {
                room = client.reserve(), if !is_told => match room {
                    Ok(room) => {
                        progress.frame(FULL, now(), &mut frames);
                        room.send(Bytes::from(std::mem::take(&mut frames)));
                    }
                    Err(_) if !goes_on => return Err(Broken::Gone),
                    Err(_) => {
                        frames.clear();
                        progress.forget();
                    }
                },
                heard = process.listen(&mut frames), if has_room => {
                    silent_since = Instant::now();
                    match heard {
                        Ok(Some(heard)) => progress.note(heard, budget),
                        Ok(None) => {
                            if let Some(notice) = budget.notice() {
                                Event::stderr(notice, now()).frame(&mut frames);
                            }
                        }
                        Err(_) => {
                            pass(client, &mut frames, goes_on).await?;
                            return Ok(Ended::Broken);
                        }
                    }
                }
                _ = ping.tick() => Event::ping(now()).frame(&mut frames),
                () = sleep_until(silent_since + REST), if has_room && progress.is_nearly_over() => {
                    progress.be_over();
                }
            }
        }
    }

    /// Passes on what is left of a kernel that is not there any more, and says so.
    async fn bury(&mut self, client: &mpsc::Sender<Bytes>, goes_on: bool) -> Result<(), Broken> {
        let mut frames = Vec::new();
        if let (Some(process), Some(progress)) = (&mut self.process, &mut self.progress) {
            while progress.has_news() {
                progress.frame(FULL, now(), &mut frames);
                pass(client, &mut frames, goes_on).await?;
            }
            let mut left = None;
            while !process.driven.drain(&mut left, &mut frames, READ) {
                pass(client, &mut frames, goes_on).await?;
            }
            drop(timeout(GRACE, process.driven.ended()).await);
        }
        let event = self.last_words().await;
        event.frame(&mut frames);
        pass(client, &mut frames, goes_on).await
    }

    /// Says how a kernel has ended, or ends it.
    async fn last_words(&mut self) -> Event {
        let exit = self.process.as_ref().and_then(|process| process.driven.exit);
        self.kill().await;
        let killed = "killed, because it could not be understood any more";
        exit.map_or_else(
            || Executor::Kernel.is_gone(self.language, killed),
            |exit| Executor::Kernel.has_died(self.language, exit),
        )
    }
}

impl Host for Kernel {
    type Text = Cell;

    /// What it says and prints between cells is for nobody.
    async fn tend(&mut self) {
        let Some(process) = &mut self.process else { return std::future::pending().await };
        if process.idle().await.is_err() {
            self.kill().await;
        }
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
                let is_ready = self.ready().await.is_ok();
                if is_ready && self.language == Language::Python {
                    self.tell(&python::imports(modules)).await;
                }
                return Ok(());
            }
            Cell::Rest => {
                self.kill().await;
                self.lost = self.lost.map(|_| Loss::Idle);
                return Ok(());
            }
            Cell::Become(daemon, birth) => {
                self.daemon = Arc::clone(daemon);
                let birth = self.spec.birth(birth.clone());
                let birth = birth.map_err(|error| Broken::Host(error.to_string()))?;
                let before = std::mem::replace(&mut self.birth, birth.clone());
                // The others make do with what they have.
                if birth != before && self.language == Language::Python {
                    self.tell(&python::surroundings(&birth)).await;
                }
                return Ok(());
            }
        };
        let mut frames = Vec::new();
        let mut ping = pings(began);
        self.progress = None;
        if let Err(evalue) = self.ready_for(client, &mut ping, goes_on).await? {
            let ename = enames::INTERPRETER.to_owned();
            let failure = Failure { ename, evalue, traceback: Vec::new() };
            Event::error(failure, now()).frame(&mut frames);
            return pass(client, &mut frames, goes_on).await;
        }
        if let Some(loss) = self.lost.take() {
            Executor::Kernel.is_new(loss).frame(&mut frames);
            pass(client, &mut frames, goes_on).await?;
        }
        let budget = Arc::new(Budget::new(OUTPUT));
        let (pause, mut tries) = REFUSED;
        loop {
            let Some(process) = &mut self.process else { return Err(Broken::Gone) };
            process.driven.be_within(&budget);
            let Ok(id) = process.execute(code) else { return self.bury(client, goes_on).await };
            self.progress = Some(Progress::of(id));
            match self.attend(client, &mut ping, &budget, goes_on).await? {
                Ended::Replied(Reply::Aborted) if tries > 0 => {
                    tries -= 1;
                    sleep(pause).await;
                }
                Ended::Replied(Reply::Leaves) | Ended::Broken => {
                    return self.bury(client, goes_on).await;
                }
                Ended::Replied(Reply::Aborted) => {
                    let evalue =
                        "the kernel refuses to run the cell: delete the context, and make another"
                            .to_owned();
                    let ename = enames::INTERPRETER.to_owned();
                    let failure = Failure { ename, evalue, traceback: Vec::new() };
                    Event::error(failure, now()).frame(&mut frames);
                    self.progress = None;
                    return pass(client, &mut frames, goes_on).await;
                }
                Ended::Replied(Reply::Done) => break,
            }
        }
        self.progress = None;
        if let Some(process) = &mut self.process {
            let mut left = None;
            while !process.driven.drain(&mut left, &mut frames, READ) {
                pass(client, &mut frames, goes_on).await?;
            }
        }
        outcome(Exit::Code(0), began).frame(&mut frames);
        pass(client, &mut frames, goes_on).await
    }

    /// A cell that is interrupted keeps the state, as long as it ends.
    async fn give_up(&mut self, why: End, began: Instant, frames: &mut Vec<u8>, most: usize) {
        if why == End::Deleted {
            outcome(Exit::Signal(9), began).frame(frames);
            return;
        }
        let interrupt = self.spec.interrupt;
        let (Some(process), Some(mut progress)) = (&mut self.process, self.progress.take()) else {
            return not_begun(why, began).frame(frames);
        };
        let budget = Budget::new(most as u64);
        let deadline = Instant::now() + POLITE;
        let mut again = interval(AGAIN);
        let mut silent_since = Instant::now();
        let (mut is_broken, mut has_forgotten) = (false, false);
        // The order to end the cell, when it was taken, and the question whether it has ended.
        let (mut order, mut obeyed_at, mut question) = (None, None, None);
        while progress.outcome().is_none()
            && !is_broken
            && !has_forgotten
            && Instant::now() < deadline
        {
            let mut output = Vec::new();
            tokio::select! {
                heard = process.listen(&mut output) => {
                    silent_since = Instant::now();
                    match heard {
                        Ok(Some(Heard::Obeyed)) => obeyed_at = obeyed_at.or(Some(silent_since)),
                        Ok(Some(Heard::News(it))) if order.as_ref() == Some(&it.parent) => {
                            // Some do not answer orders, but say that they have nothing else to do.
                            obeyed_at = obeyed_at.or_else(|| is_idle(&it).then_some(silent_since));
                        }
                        Ok(Some(Heard::Answer(it))) if question.as_ref() == Some(&it.parent) => {
                            has_forgotten = true;
                        }
                        Ok(Some(heard)) => {
                            progress.note(heard, &budget);
                            if progress.held() > HELD {
                                progress.forget();
                            }
                        }
                        Ok(None) => {}
                        Err(_) => is_broken = true,
                    }
                }
                _ = again.tick(), if obeyed_at.is_none() => match process.interrupt(interrupt) {
                    Ok(id) => order = id,
                    Err(_) => is_broken = true,
                },
                () = sleep_until(silent_since + REST / 2), if progress.is_nearly_over() => {
                    progress.be_over();
                }
                () = sleep_until(obeyed_at.unwrap_or(deadline) + DOUBT), if question.is_none() => {
                    question = process.ask().ok();
                }
                () = sleep_until(deadline) => {}
            }
            if frames.len() + output.len() <= most {
                frames.append(&mut output);
            }
        }
        progress.frame(most, now(), frames);
        if let End::Timeout(limit) = why {
            ran_too_long(limit).frame(frames);
        }
        if is_broken {
            drop(timeout_at(Instant::now() + GRACE, process.driven.ended()).await);
            self.last_words().await.frame(frames);
        } else if progress.outcome().is_some() {
            outcome(Exit::Code(0), began).frame(frames);
        } else {
            self.kill().await;
            let how = if has_forgotten {
                "killed, because it cannot go on after an interrupt"
            } else {
                "killed, because its cell did not end when it was interrupted"
            };
            Executor::Kernel.is_gone(self.language, how).frame(frames);
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
