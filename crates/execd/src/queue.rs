//! Runs that wait for each other: whoever has a state does one after the other.

use std::{collections::VecDeque, future::Future, sync::Arc, time::Duration};

use axum::body::Bytes;
use osb_api::execd::Event;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    command::OnDisconnect,
    daemon::Daemon,
    error::ApiError,
    events::{failure, now, outcome, pings},
    output::READ,
    reaper::Exit,
};

/// The most runs that wait or run for one host.
const RUNS: usize = 32;

/// The most bytes of all runs that wait or run, for all hosts together.
const ROOM: usize = 64 << 20;

/// How long a client may take to read the last events of a run that was ended.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Room for the texts of all runs.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM)))
    }
}

impl Room {
    fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Arc::clone(&self.0).try_acquire_many_owned(bytes).map_err(|_| {
            ApiError::too_busy(format!(
                "what waits to be run in all contexts and sessions is longer than {ROOM} bytes: \
                 try again once some of it has run"
            ))
        })
    }
}

/// What can be asked for, which waits in memory.
pub(crate) trait Wait: Send + 'static {
    /// How many bytes it takes, about.
    fn size(&self) -> usize;
}

/// Who has a state, and runs what is asked for.
pub(crate) trait Host: Send + 'static {
    /// What it can be asked to run.
    type Text: Wait;

    /// Takes care of itself between runs, until there is something to look at again.
    fn tend(&mut self) -> impl Future<Output = ()> + Send;

    /// Runs a text and sends all of its events. Without a client it goes on only if it shall.
    fn run(
        &mut self,
        text: &Self::Text,
        client: &mpsc::Sender<Bytes>,
        began: Instant,
        goes_on: bool,
    ) -> impl Future<Output = Result<(), Broken>> + Send;

    /// Ends the run in progress, which is not asked about any more. What is left of its output is
    /// added to `frames`, but no more than fits, and then its last event.
    fn give_up(
        &mut self,
        why: End,
        began: Instant,
        frames: &mut Vec<u8>,
        most: usize,
    ) -> impl Future<Output = ()> + Send;

    /// Ends what is in progress of something that nobody hears of, and whatever has come of it.
    fn abandon(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Ends it, and all that comes from it.
    fn end(self) -> impl Future<Output = ()> + Send;
}

/// Why a run has no outcome.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The client went away.
    Gone,
    /// The host cannot run anything.
    Host(String),
}

/// Why a run is ended before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Timeout(Duration),
    Gone,
    Interrupted,
    Deleted,
}

/// Where a host takes its orders. Once this is gone, it ends.
#[derive(Debug)]
pub(crate) struct Desk<T> {
    mailbox: mpsc::UnboundedSender<Message<T>>,
    places: Arc<Semaphore>,
    room: Room,
    task: JoinHandle<()>,
}

impl<T: Wait> Desk<T> {
    /// Lets a host begin.
    pub(crate) fn open(daemon: &Daemon, host: impl Host<Text = T>) -> Self {
        let (mailbox, messages) = mpsc::unbounded_channel();
        let goes_on = daemon.commands.settings.on_disconnect != OnDisconnect::End;
        let task = daemon.tasks.spawn(serve(host, messages, goes_on, daemon.ending.clone()));
        Self { mailbox, places: Arc::new(Semaphore::new(RUNS)), room: daemon.room.clone(), task }
    }

    /// Lines a run up. False says that the host has ended.
    pub(crate) fn order(
        &self,
        text: T,
        timeout: Option<Duration>,
        client: mpsc::Sender<Bytes>,
    ) -> Result<bool, ApiError> {
        self.line_up(text, timeout, client, Seen::ByClient)
    }

    /// The same for something of which nobody hears. What is returned is closed once it is over; if it
    /// is dropped before, it is given up. Nothing says that the host has ended, or is too busy.
    pub(crate) fn order_unseen(&self, text: T, timeout: Duration) -> Option<mpsc::Receiver<Bytes>> {
        let (client, over) = mpsc::channel(1);
        let taken = self.line_up(text, Some(timeout), client, Seen::ByNobody).unwrap_or(false);
        taken.then_some(over)
    }

    fn line_up(
        &self,
        text: T,
        timeout: Option<Duration>,
        client: mpsc::Sender<Bytes>,
        seen: Seen,
    ) -> Result<bool, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            ApiError::refused(format!("the session is busy: {RUNS} of its runs wait or run"))
        })?;
        let room = self.room.take(text.size())?;
        let order = Order { text, timeout, client, seen, _place: place, _room: room };
        Ok(self.mailbox.send(Message::Run(order)).is_ok())
    }

    /// Whether something runs, or waits for that.
    pub(crate) fn is_busy(&self) -> bool {
        self.places.available_permits() < RUNS
    }

    /// Ends the run in progress. Resolves once it has ended, to whether there was one.
    pub(crate) fn interrupt(&self) -> impl Future<Output = bool> + use<T> {
        let (answer, interrupted) = oneshot::channel();
        let asked = self.mailbox.send(Message::Interrupt(answer));
        async move { asked.is_ok() && interrupted.await.unwrap_or(false) }
    }

    /// Ends the host.
    pub(crate) async fn close(self) {
        let Self { mailbox, task, places: _, room: _ } = self;
        drop(mailbox);
        // The only failure is that the program ends.
        drop(task.await);
    }
}

/// What callers ask of a host.
#[derive(Debug)]
enum Message<T> {
    Run(Order<T>),
    /// Ends the run in progress, and answers whether there was one once it has ended.
    Interrupt(oneshot::Sender<bool>),
}

/// A run that was asked for.
#[derive(Debug)]
struct Order<T> {
    text: T,
    timeout: Option<Duration>,
    client: mpsc::Sender<Bytes>,
    seen: Seen,
    /// Its place among those that wait or run.
    _place: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
}

/// Who hears of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    ByClient,
    ByNobody,
}

/// The runs of a host, in the order in which they were asked for.
#[derive(Debug)]
struct Queue<T> {
    mailbox: mpsc::UnboundedReceiver<Message<T>>,
    waiting: VecDeque<Order<T>>,
    /// Runs go on without their clients.
    goes_on: bool,
    /// execd is about to end, and no other run begins.
    ending: CancellationToken,
}

/// Runs what is asked for until nobody can ask any more, and ends the host.
async fn serve<H: Host>(
    mut host: H,
    mailbox: mpsc::UnboundedReceiver<Message<H::Text>>,
    goes_on: bool,
    ending: CancellationToken,
) {
    let mut queue = Queue { mailbox, waiting: VecDeque::new(), goes_on, ending };
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

async fn execute<H: Host>(host: &mut H, queue: &mut Queue<H::Text>, order: Order<H::Text>) {
    let Order { text, timeout: limit, client, seen, _place, _room } = order;
    let began = Instant::now();
    let goes_on = queue.goes_on;
    let interruption = queue.interruption(&client, began, limit, seen);
    let (why, asked) = tokio::select! {
        done = host.run(&text, &client, began, goes_on) => match done {
            Ok(()) => return,
            Err(Broken::Gone) => (End::Gone, None),
            Err(Broken::Host(message)) => {
                let mut frame = Vec::new();
                Event::error(failure(message.clone(), message), now()).frame(&mut frame);
                return say_last(&client, frame).await;
            }
        },
        why = interruption => why,
    };
    drop(text);
    if seen == Seen::ByNobody {
        return host.abandon().await;
    }
    let mut frames = Vec::new();
    host.give_up(why, began, &mut frames, 4 * READ).await;
    if let Some(asked) = asked {
        // Whoever asked may have gone.
        let _ = asked.send(true);
    }
    say_last(&client, frames).await;
}

async fn say_last(client: &mpsc::Sender<Bytes>, frames: Vec<u8>) {
    drop(timeout(LAST_WORDS, client.send(Bytes::from(frames))).await);
}

impl<T> Queue<T> {
    /// The next run whose client is still there; nothing once the host is not wanted or execd ends.
    async fn next(&mut self, host: &mut impl Host<Text = T>) -> Option<Order<T>> {
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

    /// Resolves when there is a reason to end the run, with whoever waits for that. Meanwhile others
    /// can line up.
    async fn interruption(
        &mut self,
        client: &mpsc::Sender<Bytes>,
        began: Instant,
        limit: Option<Duration>,
        seen: Seen,
    ) -> (End, Option<oneshot::Sender<bool>>) {
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
                () = &mut deadline => return (End::Timeout(limit.unwrap_or_default()), None),
                () = client.closed(), if !self.goes_on => return (End::Gone, None),
                message = self.mailbox.recv() => match message {
                    None => return (End::Deleted, None),
                    // Whoever asks means a run of which somebody hears.
                    Some(Message::Interrupt(asked)) if seen == Seen::ByNobody => {
                        // Whoever asked may have gone.
                        let _ = asked.send(self.skip());
                    }
                    Some(Message::Interrupt(asked)) => return (End::Interrupted, Some(asked)),
                    Some(Message::Run(order)) => self.waiting.push_back(order),
                },
                _ = ping.tick(), if !self.waiting.is_empty() => self.ping(),
            }
        }
    }

    /// Gives up the next run of which somebody hears, before it has begun. Returns whether there was one.
    fn skip(&mut self) -> bool {
        let next = self.waiting.iter().position(|order| order.seen == Seen::ByClient);
        let Some(order) = next.and_then(|at| self.waiting.remove(at)) else { return false };
        let mut frame = Vec::new();
        outcome(Exit::Signal(2), Instant::now()).frame(&mut frame);
        // Whoever does not read has no use for it.
        drop(order.client.try_send(Bytes::from(frame)));
        true
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
