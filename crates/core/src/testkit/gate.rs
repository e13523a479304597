use std::{
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, Waker},
};

/// Holds back every `ensure` that begins after it was made, until it is opened or dropped.
#[derive(Debug)]
#[must_use = "a dropped gate is an open gate"]
pub struct Gate(Barrier);

impl Gate {
    pub fn open(self) {
        drop(self);
    }

    /// How many calls stand at the gate now.
    pub fn waiting(&self) -> usize {
        self.0.state().waiting.len()
    }

    pub(super) fn new() -> (Self, Barrier) {
        let barrier = Barrier::default();
        (Self(barrier.clone()), barrier)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let woken = {
            let mut state = self.0.state();
            state.open = true;
            std::mem::take(&mut state.waiting)
        };
        for (_, waker) in woken {
            waker.wake();
        }
    }
}

/// The side of a [`Gate`] on which calls wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Barrier(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    open: bool,
    arrived: u64,
    waiting: Vec<(u64, Waker)>,
}

impl Barrier {
    pub(super) async fn pass(&self) {
        let place = {
            let mut state = self.state();
            state.arrived += 1;
            Place { barrier: self, number: state.arrived }
        };
        poll_fn(|cx| {
            let mut state = place.barrier.state();
            if state.open {
                return Poll::Ready(());
            }
            state.waiting.retain(|(number, _)| *number != place.number);
            state.waiting.push((place.number, cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One waiting call, which leaves the queue even when it is cancelled.
struct Place<'a> {
    barrier: &'a Barrier,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.barrier.state().waiting.retain(|(number, _)| *number != self.number);
    }
}
