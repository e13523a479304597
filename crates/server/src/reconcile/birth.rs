//! A sandbox whose creator still waits for the answer.

use std::{sync::Arc, time::Duration};

use osb_api::SandboxId;
use osb_core::{Goal, RuntimeError};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    record::Record,
    store::{Store, StoreError},
};

/// Why there is no new sandbox.
#[derive(Debug)]
pub(crate) enum NotCreated {
    Runtime(RuntimeError),
    /// It came up and ended at once; the text says how.
    Ended(String),
    Store(StoreError),
    /// The server is ending, or somebody deleted the sandbox meanwhile.
    Withdrawn,
}

pub(super) type Outcome = Result<Arc<Record>, NotCreated>;

/// The driver's side.
#[derive(Debug)]
pub(super) struct Birth {
    reply: oneshot::Sender<Outcome>,
    deadline: Instant,
}

/// The creator's side. Dropped before the answer, it takes the sandbox back: nobody would know
/// of it.
#[derive(Debug)]
pub(crate) struct Creating {
    id: SandboxId,
    answer: oneshot::Receiver<Outcome>,
    store: Arc<Store>,
    answered: bool,
}

pub(super) fn pair(id: SandboxId, store: Arc<Store>, patience: Duration) -> (Birth, Creating) {
    let (reply, answer) = oneshot::channel();
    let birth = Birth { reply, deadline: Instant::now() + patience };
    (birth, Creating { id, answer, store, answered: false })
}

impl Birth {
    /// Ends the wait. Whether anybody was still there.
    pub(super) fn answer(self, outcome: Outcome) -> bool {
        self.reply.send(outcome).is_ok()
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    pub(super) async fn abandoned(&mut self) {
        self.reply.closed().await;
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Creating {
    /// Waits until the sandbox runs, has failed and is gone again, or takes too long.
    pub(crate) async fn wait(mut self) -> Outcome {
        let outcome = (&mut self.answer).await.unwrap_or(Err(NotCreated::Withdrawn));
        self.answered = true;
        outcome
    }
}

impl Drop for Creating {
    fn drop(&mut self) {
        if !self.answered {
            // The driver notices a closed channel, unless it has just put the answer into it.
            self.store.update_later(self.id, |record| {
                record.desired.goal = Goal::Removed;
                record.requests += 1;
            });
        }
    }
}
