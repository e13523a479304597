use std::{future::poll_fn, io, task::Poll};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// The signals that somebody outside may send to execd and mean the entrypoint.
const HEARD: [(Signal, SignalKind); 7] = [
    (Signal::TERM, SignalKind::terminate()),
    (Signal::INT, SignalKind::interrupt()),
    (Signal::QUIT, SignalKind::quit()),
    (Signal::HUP, SignalKind::hangup()),
    (Signal::USR1, SignalKind::user_defined1()),
    (Signal::USR2, SignalKind::user_defined2()),
    (Signal::WINCH, SignalKind::window_change()),
];

/// What is heard from outside.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    pub(crate) fn hear() -> io::Result<Self> {
        HEARD
            .into_iter()
            .map(|(name, kind)| Ok((name, signal(kind)?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (name, heard) in &mut self.0 {
                if heard.poll_recv(context) == Poll::Ready(Some(())) {
                    return Poll::Ready(*name);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Resolves once a signal asks a program to end.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if asks_to_end(signal) {
                return signal;
            }
        }
    }
}

pub(crate) fn asks_to_end(signal: Signal) -> bool {
    matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT)
}
