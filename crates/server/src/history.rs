//! What happened to a sandbox, the latest of it.
//!
//! Whoever changes a record tells of it there, so that the change and what is told of it are written
//! down together or not at all.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use osb_api::{SnapshotId, lifecycle::NetworkAction};
use osb_core::{Phase, Reason, Status};
use serde::{Deserialize, Serialize};

/// How many entries there are of a sandbox at most.
pub(crate) const KEPT: usize = 200;

/// Entries in the order in which things happened. Clones share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct History(Arc<Vec<Arc<Entry>>>);

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Counts what happened to the sandbox, from one on. Of an entry that stands for several, the
    /// number of the last.
    pub(crate) number: u64,
    /// How often it happened without anything else in between.
    pub(crate) times: u64,
    /// When; the last time if that was more than once.
    pub(crate) at: Timestamp,
    pub(crate) what: Happening,
}

/// What happened. It is stored as it stands, so a field that is added later needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Happening {
    /// It came into another phase, or stays in it for another reason.
    Status {
        phase: Phase,
        reason: Reason,
        message: String,
    },
    /// The kernel ended processes of it for lack of memory; so many in all.
    OutOfMemory {
        kills: u64,
    },
    /// Something that was tried with it went wrong.
    Failed {
        attempt: Attempt,
        message: String,
    },
    Renewed {
        until: Timestamp,
    },
    MetadataChanged {
        labels: usize,
    },
    PolicyChanged {
        default: NetworkAction,
        rules: usize,
    },
    SnapshotTaken {
        id: SnapshotId,
        bytes: u64,
    },
    SnapshotFailed {
        id: SnapshotId,
        message: String,
    },
}

/// What is tried with a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Attempt {
    Pause,
    Resume,
    Remove,
}

/// Who knows of what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The runtime, which saw it.
    Runtime,
    /// Whoever asked for it.
    Request,
}

impl History {
    /// That of a sandbox of which nothing but its status is known.
    pub(crate) fn beginning(status: &Status) -> Self {
        let mut history = Self::default();
        history.tell(status.since, Happening::status(status));
        history
    }

    /// As it was written down, in order.
    pub(crate) fn of(entries: Vec<Entry>) -> Self {
        let spare = entries.len().saturating_sub(KEPT);
        Self(Arc::new(entries.into_iter().skip(spare).map(Arc::new).collect()))
    }

    /// Adds what happened. What is of no interest one by one takes the place of its like.
    pub(crate) fn tell(&mut self, at: Timestamp, what: Happening) {
        let entries = Arc::make_mut(&mut self.0);
        let last = entries.last();
        let number = last.map_or(0, |last| last.number) + 1;
        let earlier = last.filter(|last| what.continues(&last.what)).map(|last| last.times);
        if earlier.is_some() {
            entries.pop();
        }
        let times = earlier.unwrap_or(0) + 1;
        entries.push(Arc::new(Entry { number, times, at, what }));
        let spare = entries.len().saturating_sub(KEPT);
        entries.drain(..spare);
    }

    pub(crate) fn entries(&self) -> &[Arc<Entry>] {
        &self.0
    }

    /// The number of the newest entry.
    pub(crate) fn newest(&self) -> u64 {
        self.0.last().map_or(0, |last| last.number)
    }

    /// How much happened before the oldest entry, and is forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.0.first().map_or(0, |first| first.number.saturating_sub(first.times))
    }

    /// How many processes it was last told that were ended for lack of memory.
    pub(crate) fn kills(&self) -> u64 {
        let told = self.0.iter().rev().find_map(|entry| match &entry.what {
            Happening::OutOfMemory { kills } => Some(*kills),
            Happening::Status { .. }
            | Happening::Failed { .. }
            | Happening::Renewed { .. }
            | Happening::MetadataChanged { .. }
            | Happening::PolicyChanged { .. }
            | Happening::SnapshotTaken { .. }
            | Happening::SnapshotFailed { .. } => None,
        });
        told.unwrap_or(0)
    }
}

impl Happening {
    pub(crate) fn status(status: &Status) -> Self {
        let Status { phase, reason, message, since: _ } = status;
        Self::Status { phase: *phase, reason: *reason, message: message.clone() }
    }

    /// Whether it is told well enough by taking the place of what happened before.
    fn continues(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (Self::OutOfMemory { .. }, Self::OutOfMemory { .. })
            | (Self::Renewed { .. }, Self::Renewed { .. })
            | (Self::MetadataChanged { .. }, Self::MetadataChanged { .. })
            | (Self::PolicyChanged { .. }, Self::PolicyChanged { .. }) => true,
            (Self::Failed { attempt, .. }, Self::Failed { attempt: earlier, .. }) => {
                attempt == earlier
            }
            _ => false,
        }
    }

    pub(crate) fn source(&self) -> Source {
        match self {
            Self::Status { reason: Reason::UserRequest, .. }
            | Self::Renewed { .. }
            | Self::MetadataChanged { .. }
            | Self::PolicyChanged { .. } => Source::Request,
            Self::Status { .. }
            | Self::OutOfMemory { .. }
            | Self::Failed { .. }
            | Self::SnapshotTaken { .. }
            | Self::SnapshotFailed { .. } => Source::Runtime,
        }
    }

    /// The word that programs compare.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Status { reason, .. } => reason.as_str(),
            Self::OutOfMemory { .. } => Reason::OutOfMemory.as_str(),
            Self::Failed { attempt: Attempt::Pause, .. } => "PAUSE_FAILED",
            Self::Failed { attempt: Attempt::Resume, .. } => "RESUME_FAILED",
            Self::Failed { attempt: Attempt::Remove, .. } => "REMOVE_FAILED",
            Self::Renewed { .. } => "RENEWED",
            Self::MetadataChanged { .. } => "METADATA_CHANGED",
            Self::PolicyChanged { .. } => "POLICY_CHANGED",
            Self::SnapshotTaken { .. } => "SNAPSHOT_TAKEN",
            Self::SnapshotFailed { .. } => "SNAPSHOT_FAILED",
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { phase, message, .. } => write!(f, "{phase}: {message}"),
            Self::OutOfMemory { kills: 1 } => {
                f.write_str("one process was ended for lack of memory")
            }
            Self::OutOfMemory { kills } => {
                write!(f, "{kills} processes were ended for lack of memory so far")
            }
            Self::Failed { message, .. } | Self::SnapshotFailed { message, .. } => {
                f.write_str(message)
            }
            Self::Renewed { until } => write!(f, "the sandbox now expires at {until}"),
            Self::MetadataChanged { labels } => write!(f, "the sandbox now has {labels} labels"),
            Self::PolicyChanged { default, rules } => {
                let default = match default {
                    NetworkAction::Allow => "allowed",
                    NetworkAction::Deny => "denied",
                };
                write!(f, "the policy now has {rules} rules, and all else is {default}")
            }
            Self::SnapshotTaken { id, bytes } => write!(f, "snapshot {id} holds {bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn taken() -> Happening {
        Happening::SnapshotTaken { id: SnapshotId::random(), bytes: 1 }
    }

    #[test]
    fn the_oldest_is_forgotten_and_counted() {
        let mut history = History::default();
        for second in 0..=250 {
            history.tell(at(second), taken());
        }
        assert_eq!(history.entries().len(), KEPT);
        assert_eq!((history.forgotten(), history.newest()), (51, 251));
        assert_eq!(history.entries()[0].number, 52);
    }

    #[test]
    fn renewals_in_a_row_are_one_entry() {
        let mut history = History::beginning(&Status::starting(at(0)));
        for second in 1..=300 {
            history.tell(at(second), Happening::Renewed { until: at(second + 60) });
        }
        history.tell(at(301), taken());
        history.tell(at(302), Happening::Renewed { until: at(400) });
        let told: Vec<_> =
            history.entries().iter().map(|entry| (entry.number, entry.times)).collect();
        assert_eq!(told, [(1, 1), (301, 300), (302, 1), (303, 1)]);
        assert_eq!(history.entries()[1].at, at(300));
        assert_eq!(history.forgotten(), 0);
    }

    #[test]
    fn an_earlier_version_is_left_as_it_was() {
        let earlier = History::beginning(&Status::starting(at(0)));
        let mut later = earlier.clone();
        later.tell(at(1), Happening::OutOfMemory { kills: 2 });
        assert_eq!((earlier.newest(), later.newest()), (1, 2));
        assert_eq!((earlier.kills(), later.kills()), (0, 2));
    }

    #[test]
    fn what_happened_is_stored_in_words() {
        let policy = Happening::PolicyChanged { default: NetworkAction::Deny, rules: 2 };
        let text = serde_json::to_string(&policy).expect("JSON");
        assert_eq!(text, r#"{"type":"policy-changed","default":"deny","rules":2}"#);
        assert_eq!(serde_json::from_str::<Happening>(&text).expect("the same"), policy);
    }
}
