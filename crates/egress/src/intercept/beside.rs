//! What a connection does beside itself: its requests, each at its own pace, and the connections to
//! its host.

use std::{
    pin::{Pin, pin},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use hyper::rt::Executor;
use tokio::{sync::mpsc, time::sleep};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes what is to be done, and leaves it to whoever runs the connection. So it is part of the same
/// turn, and ends when that is dropped.
#[derive(Clone)]
pub(super) struct Beside(mpsc::UnboundedSender<Task>);

impl Beside {
    /// No more wait than there are requests, of which either side allows only so many, and a
    /// connection for each.
    pub(super) fn new() -> (Self, Queue) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), Queue { waiting: receiver, begun: FuturesUnordered::new() })
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Beside {
    fn execute(&self, task: F) {
        // Once nobody runs the connection, nothing of it is done.
        drop(self.0.send(Box::pin(task)));
    }
}

pub(super) struct Queue {
    waiting: mpsc::UnboundedReceiver<Task>,
    begun: FuturesUnordered<Task>,
}

impl Queue {
    /// Runs a connection and what it does beside, until the connection ends.
    pub(super) async fn run<T>(&mut self, connection: impl Future<Output = T>) -> T {
        let mut connection = pin!(connection);
        loop {
            tokio::select! {
                ended = &mut connection => return ended,
                () = self.step() => {}
            }
        }
    }

    /// As [`Self::run`]. Once nothing was to be done beside for so long, the connection is to `leave`;
    /// if it takes too long for that, nothing is returned.
    pub(super) async fn run_busy<T, C: Future<Output = T>>(
        &mut self,
        connection: C,
        idle: Duration,
        leave: (impl FnOnce(Pin<&mut C>), Duration),
    ) -> Option<T> {
        let mut connection = pin!(connection);
        let (mut patience, mut leave) = (idle, Some(leave));
        loop {
            let is_idle = self.begun.is_empty();
            tokio::select! {
                ended = &mut connection => return Some(ended),
                () = self.step() => {}
                () = sleep(patience), if is_idle => {
                    let (leave, within) = leave.take()?;
                    leave(connection.as_mut());
                    patience = within;
                }
            }
        }
    }

    /// Goes on until something has begun or ended.
    async fn step(&mut self) {
        tokio::select! {
            Some(task) = self.waiting.recv() => self.begun.push(task),
            Some(()) = self.begun.next() => {}
            else => std::future::pending().await,
        }
    }
}
