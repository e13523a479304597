//! How pulls fare.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use osb_image::{Pull, PullProgress, Pulled, RemoteError};
use tokio::sync::watch;

/// Counts those who wait for an image, and what became of their waiting.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulls(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    waiting: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    abandoned: AtomicU64,
}

/// How many wait, and for how many it ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PullCounts {
    pub(crate) waiting: u64,
    pub(crate) ended: [(&'static str, u64); 3],
}

/// A pull that somebody waits for.
#[derive(Debug)]
pub(crate) struct Pulling {
    pull: Pull,
    counters: Arc<Counters>,
    is_over: bool,
}

impl Pulls {
    pub(super) fn follow(&self, pull: Pull) -> Pulling {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        Pulling { pull, counters: Arc::clone(&self.0), is_over: false }
    }

    pub(crate) fn counts(&self) -> PullCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PullCounts {
            waiting: read(&self.0.waiting),
            ended: [
                ("succeeded", read(&self.0.succeeded)),
                ("failed", read(&self.0.failed)),
                ("abandoned", read(&self.0.abandoned)),
            ],
        }
    }
}

impl Pulling {
    pub(crate) fn progress(&self) -> watch::Receiver<PullProgress> {
        self.pull.progress()
    }
}

impl Future for Pulling {
    type Output = Result<Pulled, Arc<RemoteError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = std::task::ready!(Pin::new(&mut self.pull).poll(context));
        if !std::mem::replace(&mut self.is_over, true) {
            let counters = &self.counters;
            let outcome = if result.is_ok() { &counters.succeeded } else { &counters.failed };
            outcome.fetch_add(1, Ordering::Relaxed);
            counters.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        Poll::Ready(result)
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        if !self.is_over {
            self.counters.abandoned.fetch_add(1, Ordering::Relaxed);
            self.counters.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
