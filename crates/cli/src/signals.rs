//! Being asked to stop.

use std::{future::pending, time::Duration};

use tokio::{
    signal::unix::{Signal as Listener, SignalKind, signal},
    time::Instant,
};

use crate::failure::Failure;

/// The number of a signal that asks to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signal(pub(crate) u8);

impl Signal {
    /// What a shell reports for a program that this signal ended.
    pub(crate) fn exit_code(self) -> u8 {
        self.0.saturating_add(128)
    }
}

/// Where requests to stop come from, so that tests can make them.
pub(crate) trait Interrupts {
    /// The next request. Dropping the future loses none.
    async fn next(&mut self) -> Signal;
}

/// The process's signals. While this exists they do not end the process.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Listener,
    terminate: Listener,
    hangup: Option<Listener>,
    last: Option<Instant>,
}

/// Signals closer together than this are one request: timeout(1) and others signal both the
/// process and its group.
const ONE_REQUEST: Duration = Duration::from_millis(500);

impl Signals {
    /// Everything that asks a program in a terminal to stop.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self { hangup: Some(listen(SignalKind::hangup())?), ..Self::listen_but_to_hangups()? })
    }

    /// The same without hangups, which are for [`Hangups`].
    pub(crate) fn listen_but_to_hangups() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: None,
            last: None,
        })
    }
}

/// Hangups, which ask a server to read its settings again. While this exists the process goes on when
/// its terminal goes away.
#[derive(Debug)]
pub(crate) struct Hangups(Listener);

impl Hangups {
    pub(crate) fn listen() -> Result<Self, Failure> {
        listen(SignalKind::hangup()).map(Self)
    }

    /// The next one. Those that come close together are one. Dropping the future loses none.
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            pending::<()>().await;
        }
    }
}

fn listen(kind: SignalKind) -> Result<Listener, Failure> {
    signal(kind).map_err(|source| Failure::Machine {
        doing: "cannot listen for signals",
        source: source.into(),
    })
}

impl Interrupts for Signals {
    async fn next(&mut self) -> Signal {
        loop {
            let signal = self.receive().await;
            if self.last.is_none_or(|last| last.elapsed() > ONE_REQUEST) {
                self.last = Some(Instant::now());
                return signal;
            }
        }
    }
}

impl Signals {
    async fn receive(&mut self) -> Signal {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Signal(2),
            _ = self.terminate.recv() => Signal(15),
            _ = hangup => Signal(1),
        }
    }
}

#[cfg(test)]
pub(crate) mod scripted {
    use std::{future::pending, time::Duration};

    use opensandbox::testkit::FakeBackend;
    use tokio::time::sleep;

    use super::{Interrupts, Signal};

    /// Nobody asks to stop.
    pub(crate) struct Never;

    impl Interrupts for Never {
        async fn next(&mut self) -> Signal {
            pending().await
        }
    }

    /// One interrupt, once something has happened.
    pub(crate) struct After<'a> {
        happened: Box<dyn Fn() -> bool + 'a>,
        done: bool,
    }

    impl<'a> After<'a> {
        pub(crate) fn condition(happened: impl Fn() -> bool + 'a) -> Self {
            Self { happened: Box::new(happened), done: false }
        }

        /// The backend has seen a call that ends like this.
        pub(crate) fn call(backend: &'a FakeBackend, call_end: &'static str) -> Self {
            Self::condition(move || backend.calls().iter().any(|call| call.ends_with(call_end)))
        }
    }

    impl Interrupts for After<'_> {
        async fn next(&mut self) -> Signal {
            if self.done {
                return pending().await;
            }
            while !(self.happened)() {
                sleep(Duration::from_millis(1)).await;
            }
            self.done = true;
            Signal(2)
        }
    }
}
