//! Streams of events, as every run answers with one.

use std::{convert::Infallible, time::Duration};

use axum::body::{Body, Bytes};
use futures_util::stream;
use osb_api::execd::{Event, Failure, enames};
use osb_core::{Clock, SystemClock};
use tokio::{
    sync::mpsc,
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};

use crate::reaper::Exit;

/// How often a stream shows that it lives.
const PING: Duration = Duration::from_secs(3);

/// Chunks that wait for a slow client; when they are full, whatever writes them waits.
const CHUNKS: usize = 2;

/// A body and the way to write to it. The sender learns when nobody reads the body any more.
pub(crate) fn channel() -> (mpsc::Sender<Bytes>, Body) {
    let (client, mut chunks) = mpsc::channel(CHUNKS);
    let body = stream::poll_fn(move |context| {
        chunks.poll_recv(context).map(|chunk| chunk.map(Ok::<_, Infallible>))
    });
    (client, Body::from_stream(body))
}

/// The same for a run under this id, with the events that every one begins with.
pub(crate) fn begin(id: &str) -> (mpsc::Sender<Bytes>, Body) {
    let (client, body) = channel();
    let mut first = Vec::new();
    Event::init(id, now()).frame(&mut first);
    Event::ping(now()).frame(&mut first);
    client.try_send(Bytes::from(first)).expect("invariant: a new channel has room");
    (client, body)
}

/// When to send a `ping`; the first was sent at the beginning.
pub(crate) fn pings(began: Instant) -> Interval {
    let mut ping = interval_at(began + PING, PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ping
}

/// The last event of a run.
pub(crate) fn outcome(exit: Exit, began: Instant) -> Event {
    let evalue = match exit {
        Exit::Code(code) => code.to_string(),
        Exit::Signal(_) => "-1".to_owned(),
    };
    if let Some(trace) = trace(exit) {
        return Event::error(failure(evalue, trace), now());
    }
    let elapsed = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Event::complete(elapsed, now())
}

/// How a run failed, in words, if it did.
pub(crate) fn trace(exit: Exit) -> Option<String> {
    match exit {
        Exit::Code(0) => None,
        Exit::Code(code) => Some(format!("exit status {code}")),
        Exit::Signal(signal) => Some(format!("signal: {}", signal_name(signal))),
    }
}

/// A run that did not succeed, in the words that published clients look for.
pub(crate) fn failure(evalue: String, trace: String) -> Failure {
    Failure { ename: enames::COMMAND.to_owned(), evalue, traceback: vec![trace] }
}

/// What published daemons call the signals that end processes.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trace/breakpoint trap",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        10 => "user defined signal 1",
        11 => "segmentation fault",
        12 => "user defined signal 2",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

/// The time as events carry it.
pub(crate) fn now() -> i64 {
    SystemClock.now().as_millisecond()
}
