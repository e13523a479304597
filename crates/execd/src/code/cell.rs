use std::{mem, sync::Arc, time::Duration};

use axum::body::Bytes;
use osb_api::execd::{Event, Failure, enames};
use tokio::{sync::mpsc, time::Instant};

use super::language::Language;
use crate::{
    daemon::Daemon,
    driven::Birth,
    events::{self, now},
    queue::{Broken, End, Wait},
    reaper::Exit,
};

/// The most output of one cell; the rest is dropped.
pub(super) const OUTPUT: u64 = 256 << 20;

/// How long a cell has to end once it is interrupted.
pub(super) const POLITE: Duration = Duration::from_secs(3);

/// How long to wait for what was killed.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// What to do, for whatever remembers what came before.
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

impl Wait for Cell {
    fn size(&self) -> usize {
        match self {
            Self::Code(code) => code.len(),
            // Asked for by nobody outside, once.
            Self::Import(_) | Self::Rest | Self::Become(..) => 0,
        }
    }
}

/// Why what somebody knew is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    Ended,
    Idle,
}

/// Sends events on, if there are any and somebody is there.
pub(super) async fn pass(
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

/// Who executes cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Executor {
    Interpreter,
    Kernel,
}

impl Executor {
    fn name(self) -> &'static str {
        match self {
            Self::Interpreter => "interpreter",
            Self::Kernel => "kernel",
        }
    }

    /// Says that it is another one than the last time.
    pub(super) fn is_new(self, loss: Loss) -> Event {
        let name = self.name();
        let why = match loss {
            Loss::Ended => "",
            Loss::Idle => " after it had nothing to do for long",
        };
        let text = format!("[the {name} was started anew{why}: what it knew is gone]\n");
        Event::stderr(text, now())
    }

    /// Says that it has ended by itself.
    pub(super) fn has_died(self, language: Language, exit: Exit) -> Event {
        let how = match exit {
            Exit::Signal(9) => "signal: killed, as happens if memory runs out".to_owned(),
            Exit::Code(_) | Exit::Signal(_) => {
                events::trace(exit).unwrap_or_else(|| "exit status 0".to_owned())
            }
        };
        self.is_gone(language, &how)
    }

    /// Says that it is not there any more.
    pub(super) fn is_gone(self, language: Language, how: &str) -> Event {
        let (name, language) = (self.name(), language.name());
        let evalue = format!(
            "the {language} {name} has ended ({how}): what it knew is gone, and the next cell starts it anew"
        );
        let ename = enames::INTERPRETER.to_owned();
        Event::error(Failure { ename, evalue, traceback: Vec::new() }, now())
    }
}

/// Says that a cell was given up before it began.
pub(super) fn not_begun(why: End, began: Instant) -> Event {
    match why {
        End::Timeout(limit) => ran_too_long(limit),
        End::Gone | End::Interrupted => events::outcome(Exit::Signal(2), began),
        End::Deleted => events::outcome(Exit::Signal(9), began),
    }
}

/// Says that a cell has had its time.
pub(super) fn ran_too_long(limit: Duration) -> Event {
    let evalue = format!("the cell ran for longer than {} ms", limit.as_millis());
    let ename = enames::TIMEOUT.to_owned();
    Event::error(Failure { ename, evalue, traceback: Vec::new() }, now())
}
