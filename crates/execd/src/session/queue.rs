use std::{collections::VecDeque, time::Duration};

use axum::body::Bytes;
use osb_api::execd::Event;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::host::{Broken, Host, Text};
use crate::{
    events::{failure, now, outcome, pings},
    output::READ,
    reaper::Exit,
};

/// How long a client may take to read the last events of a run that was ended.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// What callers ask of a session.
#[derive(Debug)]
pub(super) enum Message {
    Run(Order),
    /// Ends the run in progress, and answers whether there was one once it has ended.
    Interrupt(oneshot::Sender<bool>),
}

/// A run that was asked for.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) text: Text,
    pub(super) timeout: Option<Duration>,
    pub(super) client: mpsc::Sender<Bytes>,
    /// Its place among those that wait or run.
    pub(super) _place: OwnedSemaphorePermit,
}

/// Why a run is ended before its time.
#[derive(Debug)]
enum Why {
    Timeout,
    Gone,
    Interrupted(oneshot::Sender<bool>),
    Deleted,
}

/// The runs of a session, in the order in which they were asked for.
#[derive(Debug)]
pub(super) struct Queue {
    mailbox: mpsc::UnboundedReceiver<Message>,
    waiting: VecDeque<Order>,
    /// Runs go on without their clients.
    goes_on: bool,
    /// execd is about to end, and no other run begins.
    ending: CancellationToken,
}

/// Runs what is asked for until nobody can ask any more, and ends the shell.
pub(super) async fn serve(
    mut host: Host,
    mailbox: mpsc::UnboundedReceiver<Message>,
    goes_on: bool,
) {
    let mut queue = Queue { mailbox, waiting: VecDeque::new(), goes_on, ending: host.ending() };
    while let Some(order) = queue.next(&mut host).await {
        execute(&mut host, &mut queue, order).await;
    }
    host.end().await;
    for order in queue.waiting {
        let mut frame = Vec::new();
        outcome(Exit::Signal(9), Instant::now()).frame(&mut frame);
        // Whoever does not read has no use for it.
        drop(order.client.try_send(Bytes::from(frame)));
    }
}

async fn execute(host: &mut Host, queue: &mut Queue, order: Order) {
    let Order { text, timeout: limit, client, _place } = order;
    let began = Instant::now();
    let goes_on = queue.goes_on;
    let interruption = queue.interruption(&client, began, limit);
    let why = tokio::select! {
        done = host.run(&text, &client, began, goes_on) => match done {
            Ok(()) => return,
            Err(Broken::Gone) => Why::Gone,
            Err(Broken::Shell(message)) => {
                let mut frame = Vec::new();
                Event::error(failure(message.clone(), message), now()).frame(&mut frame);
                return say_last(&client, frame).await;
            }
        },
        why = interruption => why,
    };
    drop(text);
    let mut frames = Vec::new();
    host.give_up(matches!(why, Why::Interrupted(_)), &mut frames, 4 * READ).await;
    let signal = if matches!(why, Why::Interrupted(_)) { 15 } else { 9 };
    outcome(Exit::Signal(signal), began).frame(&mut frames);
    if let Why::Interrupted(asked) = why {
        // Whoever asked may have gone.
        let _ = asked.send(true);
    }
    say_last(&client, frames).await;
}

async fn say_last(client: &mpsc::Sender<Bytes>, frames: Vec<u8>) {
    drop(timeout(LAST_WORDS, client.send(Bytes::from(frames))).await);
}

impl Queue {
    /// The next run whose client is still there; nothing once the session is deleted or execd ends.
    async fn next(&mut self, host: &mut Host) -> Option<Order> {
        loop {
            if let Some(order) = self.waiting.pop_front() {
                let is_deleted = self.mailbox.is_closed() && self.mailbox.is_empty();
                if is_deleted || self.ending.is_cancelled() {
                    self.waiting.push_front(order);
                    return None;
                }
                if order.client.is_closed() && !self.goes_on {
                    continue;
                }
                return Some(order);
            }
            tokio::select! {
                message = self.mailbox.recv() => match message? {
                    Message::Run(order) => self.waiting.push_back(order),
                    Message::Interrupt(asked) => {
                        // Whoever asked may have gone.
                        let _ = asked.send(false);
                    }
                },
                () = host.tend() => {}
                () = self.ending.cancelled() => return None,
            }
        }
    }

    /// Resolves when there is a reason to end the run. Meanwhile others can line up.
    async fn interruption(
        &mut self,
        client: &mpsc::Sender<Bytes>,
        began: Instant,
        limit: Option<Duration>,
    ) -> Why {
        let deadline = async {
            match limit {
                Some(limit) => sleep(limit.saturating_sub(began.elapsed())).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(deadline);
        let mut ping = pings(began);
        loop {
            tokio::select! {
                () = &mut deadline => return Why::Timeout,
                () = client.closed(), if !self.goes_on => return Why::Gone,
                message = self.mailbox.recv() => match message {
                    None => return Why::Deleted,
                    Some(Message::Interrupt(asked)) => return Why::Interrupted(asked),
                    Some(Message::Run(order)) => self.waiting.push_back(order),
                },
                _ = ping.tick(), if !self.waiting.is_empty() => self.ping(),
            }
        }
    }

    /// Shows those who wait that they do, and lets go of those who do not.
    fn ping(&mut self) {
        let mut frame = Vec::new();
        Event::ping(now()).frame(&mut frame);
        let (frame, goes_on) = (Bytes::from(frame), self.goes_on);
        self.waiting.retain(|order| {
            // With two chunks unread the client sees that it waits.
            drop(order.client.try_send(frame.clone()));
            goes_on || !order.client.is_closed()
        });
    }
}
