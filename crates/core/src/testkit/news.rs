use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
};

use futures_core::Stream;

use crate::Observed;

/// How much a reader may lag behind before it misses the oldest.
const BACKLOG: usize = 1024;

/// Tells every reader what happened; a slow reader misses things, as the contract allows.
#[derive(Debug, Default)]
pub(super) struct News(Mutex<Vec<Weak<Mutex<Inbox>>>>);

impl News {
    pub(super) fn publish(&self, observed: &Observed) {
        let mut woken = Vec::new();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|reader| {
            let Some(inbox) = reader.upgrade() else { return false };
            let mut inbox = lock(&inbox);
            if inbox.unread.len() == BACKLOG {
                inbox.unread.pop_front();
            }
            inbox.unread.push_back(observed.clone());
            woken.extend(inbox.waker.take());
            true
        });
        woken.into_iter().for_each(Waker::wake);
    }

    pub(super) fn subscribe(&self) -> Reader {
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&inbox));
        Reader(inbox)
    }
}

#[derive(Debug, Default)]
struct Inbox {
    unread: VecDeque<Observed>,
    waker: Option<Waker>,
}

/// What happens from the subscription on. It never ends.
#[derive(Debug)]
pub(super) struct Reader(Arc<Mutex<Inbox>>);

impl Stream for Reader {
    type Item = Observed;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Observed>> {
        let mut inbox = lock(&self.0);
        if let Some(observed) = inbox.unread.pop_front() {
            return Poll::Ready(Some(observed));
        }
        inbox.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn lock(inbox: &Mutex<Inbox>) -> MutexGuard<'_, Inbox> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}
