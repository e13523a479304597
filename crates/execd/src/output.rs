//! What programs print, cut into events.

mod budget;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod lines;
mod turn;
mod verbatim;

use std::{borrow::Cow, io, sync::Arc, time::Duration};

use osb_api::execd::Event;
use rustix::process::Pid;
use tokio::net::unix::pipe::Receiver;

pub(crate) use budget::Budget;
use lines::Lines;
pub(crate) use turn::Turn;
use verbatim::Verbatim;

/// The most that is read at once. Every byte can become an event of sixty, so this bounds what is
/// held for a client.
pub(crate) const READ: usize = 32 << 10;

/// How fast output is read that nobody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    Full,
    /// With a pause after every full buffer: a writer that never stops would otherwise take all of
    /// this program's time.
    Leisurely,
}

impl Pace {
    pub(crate) async fn rest(self, full: bool) {
        if full && self == Self::Leisurely {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Lets a writer have a megabyte or a few in each second.
const PAUSE: Duration = Duration::from_millis(5);

/// Makes an event of a line and a time.
type Make = fn(String, i64) -> Event;

/// How output is cut into the texts of events.
#[derive(Debug)]
enum Cut {
    /// One for each line.
    Lines(Lines),
    /// As it comes.
    Verbatim(Verbatim),
}

/// One output of a program: a pipe, and the texts that come out of it.
#[derive(Debug)]
pub(crate) struct Output {
    /// Gone once all writers have closed it.
    pipe: Option<Receiver>,
    cut: Cut,
    make: Make,
    budget: Option<Arc<Budget>>,
    aside: Option<Box<Aside>>,
}

/// What most outputs need not know.
#[derive(Debug, Default)]
struct Aside {
    /// Nobody wants it, because it comes on another way as well.
    is_echo: bool,
    /// The last that came, for whoever wants to know why nothing else does.
    tail: Vec<u8>,
}

/// How much is remembered of an output.
const TAIL: usize = 2 << 10;

impl Output {
    /// Line by line, over a pipe that was told not to make its reader wait.
    pub(crate) fn new(pipe: Receiver, make: Make) -> Self {
        Self {
            pipe: Some(pipe),
            cut: Cut::Lines(Lines::default()),
            make,
            budget: None,
            aside: None,
        }
    }

    /// From here on as it comes, with the ends of its lines.
    pub(crate) fn be_verbatim(&mut self) {
        self.cut = Cut::Verbatim(Verbatim::default());
    }

    /// From here on drops all that is beyond a budget, which may be shared with other outputs.
    pub(crate) fn be_within(&mut self, budget: &Arc<Budget>) {
        self.budget = Some(Arc::clone(budget));
    }

    /// From here on remembers the last that comes, whether or not somebody wants it.
    pub(crate) fn remember(&mut self) {
        self.aside = Some(Box::default());
    }

    /// The last lines that came since.
    pub(crate) fn remembered(&self) -> String {
        let Some(Aside { tail, .. }) = self.aside.as_deref() else { return String::new() };
        let text = String::from_utf8_lossy(tail);
        // The first line is whole only if nothing was forgotten.
        let whole =
            if tail.len() < TAIL { Some(&*text) } else { text.split_once('\n').map(|it| it.1) };
        whole.unwrap_or_default().trim().to_owned()
    }

    /// From here on drops what comes, if the process has put something else in place of its end of
    /// the pipe: whoever collects its output itself writes here only what it has collected.
    pub(crate) fn drop_echo(&mut self, pid: Pid, descriptor: u8) {
        let Some(pipe) = &self.pipe else { return };
        let Ok(ours) = rustix::fs::fstat(pipe) else { return };
        let theirs = format!("/proc/{}/fd/{descriptor}", pid.as_raw_pid());
        let is_echo = rustix::fs::stat(theirs)
            .is_ok_and(|theirs| (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino));
        self.aside.get_or_insert_default().is_echo = is_echo;
    }

    /// Whether somebody wants what came.
    fn note(aside: &mut Option<Box<Aside>>, bytes: &[u8]) -> bool {
        let Some(aside) = aside else { return true };
        aside.tail.extend_from_slice(bytes);
        aside.tail.drain(..aside.tail.len().saturating_sub(TAIL));
        !aside.is_echo
    }

    /// Drops all that is beyond a budget, which may be shared with other outputs.
    pub(crate) fn within(self, budget: Option<Arc<Budget>>) -> Self {
        Self { budget, ..self }
    }

    /// Resolves when there is something to read; never once the pipe is closed.
    pub(crate) async fn readable(&self) {
        match &self.pipe {
            // The only failure is that the event loop ends, and with it this program.
            Some(pipe) => drop(pipe.readable().await),
            None => std::future::pending().await,
        }
    }

    /// Reads what is there, once, and appends its events.
    pub(crate) fn read(&mut self, buffer: &mut [u8], now: i64, frames: &mut Vec<u8>) {
        let Some(pipe) = &self.pipe else { return };
        match pipe.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => self.pipe = None,
            Ok(length) => self.take(buffer.get(..length).unwrap_or_default(), now, frames),
        }
    }

    /// How much waits in the pipe at this moment.
    pub(crate) fn waiting(&self) -> u64 {
        self.pipe.as_ref().and_then(|pipe| rustix::io::ioctl_fionread(pipe).ok()).unwrap_or(0)
    }

    /// Reads at most `limit` bytes of what waits and returns how many that were, without asking
    /// the event loop, which may not have heard of them yet.
    pub(crate) fn drain(
        &mut self,
        buffer: &mut [u8],
        limit: u64,
        now: i64,
        frames: &mut Vec<u8>,
    ) -> u64 {
        let Some(pipe) = &self.pipe else { return 0 };
        let most = usize::try_from(limit).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        let Ok(length) = rustix::io::read(pipe, &mut *buffer) else { return 0 };
        self.take(buffer.get(..length).unwrap_or_default(), now, frames);
        length as u64
    }

    /// Appends what is there of a line or a character that has no end.
    pub(crate) fn finish(&mut self, now: i64, frames: &mut Vec<u8>) {
        let make = self.make;
        let emit = |text: Cow<'_, str>| make(text.into_owned(), now).frame(frames);
        match &mut self.cut {
            Cut::Lines(lines) => lines.finish(emit),
            Cut::Verbatim(verbatim) => verbatim.finish(emit),
        }
    }

    /// Reads all that comes and drops it, until nobody is left who writes. Whoever writes is not
    /// to find the pipe closed.
    pub(crate) async fn discard(&mut self, pace: Pace) {
        while self.pipe.is_some() {
            self.readable().await;
            let full = self.skip();
            pace.rest(full).await;
        }
    }

    /// Reads what is there, once, and drops it. Returns whether there may be more.
    pub(crate) fn skip(&mut self) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut buffer = [0; 8 << 10];
        match pipe.try_read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Ok(0) | Err(_) => {
                self.pipe = None;
                false
            }
            Ok(length) => {
                Self::note(&mut self.aside, buffer.get(..length).unwrap_or_default());
                length == buffer.len()
            }
        }
    }

    fn take(&mut self, bytes: &[u8], now: i64, frames: &mut Vec<u8>) {
        if !Self::note(&mut self.aside, bytes) {
            return;
        }
        let bytes = self.budget.as_ref().map_or(bytes, |budget| budget.admit(bytes));
        let make = self.make;
        let emit = |text: Cow<'_, str>| make(text.into_owned(), now).frame(frames);
        match &mut self.cut {
            Cut::Lines(lines) => lines.feed(bytes, emit),
            Cut::Verbatim(verbatim) => verbatim.feed(bytes, emit),
        }
    }
}
