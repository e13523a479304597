//! What a connection of HTTP/2 does beside itself: its requests, each at its own pace.

use std::pin::{Pin, pin};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use hyper::rt::Executor;
use tokio::sync::mpsc;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes what is to be done, and leaves it to whoever runs the connection. So it is part of the same
/// turn, and ends when that is dropped.
#[derive(Clone)]
pub(super) struct Beside(mpsc::UnboundedSender<Task>);

impl Beside {
    /// No more wait than there are requests, of which either side allows only so many.
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
                Some(task) = self.waiting.recv() => self.begun.push(task),
                Some(()) = self.begun.next() => {}
            }
        }
    }

    /// Does what was begun, and nothing new.
    pub(super) async fn finish(mut self) {
        while let Ok(task) = self.waiting.try_recv() {
            self.begun.push(task);
        }
        while self.begun.next().await.is_some() {}
    }
}
