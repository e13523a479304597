use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use osb_api::execd::CommandStatus;
use osb_core::{Clock, SystemClock};
use rustix::process::Pid;
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::settings::Settings;
use crate::{
    events,
    family::Family,
    program::Program,
    reaper::{Ended, Exit, Exited},
    retained::Retained,
};

/// How many commands that have ended are remembered.
const REMEMBERED: usize = 1024;

/// How many of them have output in a file, each of which takes a descriptor.
const FILES: usize = 128;

/// How many commands that have ended can have processes whose output is still read. Beyond, such a
/// process finds its output closed.
const LEFTOVERS: usize = 256;

/// How long to wait for the output of a command that was ended: where it goes may be slow.
const SETTLING: Duration = Duration::from_secs(1);

/// The exit code of a command that could not be started, as published daemons tell it.
const NOT_STARTED: i32 = 255;

/// All commands that run, and the last of those that have ended.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) settings: Settings,
    /// Room for those who read what processes print whose command has ended.
    pub(super) leftovers: Semaphore,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<String, Arc<Command>>,
    /// In the order in which they ended.
    ended: VecDeque<Arc<Command>>,
}

/// A command that was asked for.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) id: String,
    asked: Asked,
    fate: Fate,
    /// What it has printed, if it runs in the background.
    pub(super) log: Option<Arc<Retained>>,
    /// All that it printed is in the log, and nobody follows it any more.
    pub(super) settled: CancellationToken,
}

/// What was asked for, and when.
#[derive(Debug)]
pub(super) struct Asked {
    content: String,
    at: Timestamp,
}

impl Asked {
    pub(super) fn now(program: &Program) -> Self {
        Self { content: program.content(), at: SystemClock.now() }
    }
}

#[derive(Debug)]
enum Fate {
    NotStarted { error: String },
    Started { leader: Pid, exited: Exited },
}

impl Commands {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, leftovers: Semaphore::new(LEFTOVERS), known: Mutex::default() }
    }

    /// Remembers a command that runs.
    pub(super) fn add(
        &self,
        asked: Asked,
        leader: Pid,
        exited: Exited,
        log: Option<Arc<Retained>>,
    ) -> Arc<Command> {
        let command = Command::new(asked, Fate::Started { leader, exited }, log);
        self.insert(&command);
        command
    }

    /// Remembers a command that could not be started.
    pub(super) fn add_failed(&self, asked: Asked, error: String) -> Arc<Command> {
        let command = Command::new(asked, Fate::NotStarted { error }, None);
        self.insert(&command);
        self.settle(&command);
        command
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Command>> {
        self.known().by_id.get(id).cloned()
    }

    /// Notes that a command has ended, and forgets the oldest that are too many.
    pub(super) fn settle(&self, command: &Arc<Command>) {
        command.settled.cancel();
        let mut known = self.known();
        known.ended.push_back(Arc::clone(command));
        while known.is_too_much(self.settings.log_total)
            && let Some(oldest) = known.ended.pop_front()
        {
            known.by_id.remove(&oldest.id);
        }
    }

    /// How many run.
    pub(crate) fn running(&self) -> usize {
        self.known().by_id.values().filter(|command| command.family().is_some()).count()
    }

    fn insert(&self, command: &Arc<Command>) {
        self.known().by_id.insert(command.id.clone(), Arc::clone(command));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_too_much(&self, log_total: u64) -> bool {
        let logs = || self.ended.iter().filter_map(|command| command.log.as_ref());
        self.ended.len() > REMEMBERED
            || logs().filter(|log| log.has_file()).count() > FILES
            || logs().map(|log| log.end() - log.start()).sum::<u64>() > log_total
    }
}

impl Command {
    fn new(asked: Asked, fate: Fate, log: Option<Arc<Retained>>) -> Arc<Self> {
        Arc::new(Self {
            id: Uuid::new_v4().simple().to_string(),
            asked,
            fate,
            log,
            settled: CancellationToken::new(),
        })
    }

    /// The processes of the command, while it runs.
    pub(super) fn family(&self) -> Option<Family> {
        match &self.fate {
            Fate::Started { leader, exited } if exited.ended().is_none() => {
                Some(Family::of(*leader, exited.clone()))
            }
            Fate::Started { .. } | Fate::NotStarted { .. } => None,
        }
    }

    /// How it ended, once that is true for whoever reads its log as well.
    fn ended(&self) -> Option<Ended> {
        match &self.fate {
            Fate::Started { exited, .. } if self.log.is_none() || self.settled.is_cancelled() => {
                exited.ended()
            }
            Fate::Started { .. } | Fate::NotStarted { .. } => None,
        }
    }

    /// Waits until a command that is about to end has ended for everybody who asks.
    pub(super) async fn settled(&self) {
        if let Fate::Started { exited, .. } = &self.fate {
            let settled = async {
                exited.clone().await;
                if self.log.is_some() {
                    self.settled.cancelled().await;
                }
            };
            drop(timeout(SETTLING, settled).await);
        }
    }

    pub(super) fn status(&self) -> CommandStatus {
        let ended = self.ended();
        let (exit_code, error, finished_at) = match &self.fate {
            Fate::NotStarted { error } => {
                (Some(NOT_STARTED), Some(error.clone()), Some(self.asked.at))
            }
            Fate::Started { .. } => {
                let exit_code = ended.map(|ended| match ended.exit {
                    Exit::Code(code) => code,
                    Exit::Signal(_) => -1,
                });
                let error = ended.and_then(|ended| events::trace(ended.exit));
                (exit_code, error, ended.map(|ended| ended.at))
            }
        };
        CommandStatus {
            id: self.id.clone(),
            content: Some(self.asked.content.clone()),
            running: finished_at.is_none(),
            exit_code,
            error,
            started_at: self.asked.at,
            finished_at,
        }
    }
}
