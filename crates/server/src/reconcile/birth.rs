//! A sandbox whose creator still waits for the answer.

use std::{fmt, future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use osb_api::SandboxId;
use osb_core::{Goal, RuntimeError};
use osb_image::RemoteError;
use tokio::{runtime::Handle, sync::oneshot, time::Instant};
use tokio_util::task::TaskTracker;

use crate::{
    record::Record,
    store::{Store, StoreError},
};

/// Why there is no new sandbox.
#[derive(Debug)]
pub(crate) enum NotCreated {
    /// There is no image for it.
    Image(Arc<RemoteError>),
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
pub(crate) struct Creating {
    id: SandboxId,
    answer: oneshot::Receiver<Outcome>,
    store: Arc<Store>,
    answered: bool,
    /// The driver, which whoever waits for the answer moves on: until then there is nobody else to
    /// call. Afterwards it is a task of its own.
    driver: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    tasks: TaskTracker,
}

pub(super) fn pair(patience: Duration) -> (Birth, oneshot::Receiver<Outcome>) {
    let (reply, answer) = oneshot::channel();
    (Birth { reply, deadline: Instant::now() + patience }, answer)
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
    pub(super) fn new(
        id: SandboxId,
        answer: oneshot::Receiver<Outcome>,
        store: Arc<Store>,
        driver: impl Future<Output = ()> + Send + 'static,
        tasks: TaskTracker,
    ) -> Self {
        Self { id, answer, store, answered: false, driver: Some(Box::pin(driver)), tasks }
    }

    /// Waits until the sandbox runs, has failed and is gone again, or takes too long.
    pub(crate) async fn wait(mut self) -> Outcome {
        let outcome = poll_fn(|context| {
            if let Some(driver) = &mut self.driver
                && driver.as_mut().poll(context).is_ready()
            {
                self.driver = None;
            }
            Pin::new(&mut self.answer).poll(context)
        });
        let outcome = outcome.await.unwrap_or(Err(NotCreated::Withdrawn));
        self.answered = true;
        outcome
    }
}

impl Drop for Creating {
    fn drop(&mut self) {
        // Without a runtime everything has ended.
        if let (Some(driver), Ok(runtime)) = (self.driver.take(), Handle::try_current()) {
            self.tasks.spawn_on(driver, &runtime);
        }
        if !self.answered {
            // The driver notices a closed channel, unless it has just put the answer into it.
            self.store.update_later(self.id, |record| {
                record.desired.goal = Goal::Removed;
                record.requests += 1;
            });
        }
    }
}

impl fmt::Debug for Creating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Creating").field("id", &self.id).finish_non_exhaustive()
    }
}
