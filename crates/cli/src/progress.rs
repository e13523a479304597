//! How far something is: bars and steps on a terminal, a few lines elsewhere.

mod live;
mod plain;
mod tail;

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use opensandbox::{
    ClientError, ImageEvents,
    api::images::{ImageEvent, ImportedImage, LayerStage, PulledLayer},
};
use tokio::time::{Instant, interval};

use self::{live::Live, plain::Plain};
use crate::output::Output;

/// How often what is sent is looked at.
const TICK: Duration = Duration::from_millis(100);

/// Tells a person how far something is. What is on the terminal only meanwhile goes with it.
pub(crate) struct Progress<'o, 'a> {
    output: &'o mut Output<'a>,
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Live(Live),
    Plain(Plain),
}

/// How much of what a build says is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The last lines of a step while it runs or if it failed.
    Some,
    /// Every line.
    All,
}

impl<'o, 'a> Progress<'o, 'a> {
    pub(crate) fn new(output: &'o mut Output<'a>, detail: Detail) -> Self {
        let shown = if output.is_watched() && detail == Detail::Some {
            Shown::Live(Live::new())
        } else {
            Shown::Plain(Plain::new(detail))
        };
        Self { output, shown }
    }

    /// Tells of an event of the server's.
    pub(crate) fn event(&mut self, event: &ImageEvent) {
        match &mut self.shown {
            Shown::Live(live) => live.event(event),
            Shown::Plain(plain) => {
                let lines = plain.event(event, Instant::now());
                self.say(&lines);
            }
        }
    }

    /// Something new begins, which takes a while.
    pub(crate) fn stage(&mut self, text: &str) {
        match &mut self.shown {
            Shown::Live(live) => live.stage(text),
            Shown::Plain(plain) => {
                let lines = plain.stage(text, Instant::now());
                self.say(&lines);
            }
        }
    }

    /// What is said of something that goes on, of which not every word matters.
    pub(crate) fn status(&mut self, text: &str) {
        match &mut self.shown {
            Shown::Live(live) => live.stage(text),
            Shown::Plain(plain) => {
                let lines = plain.status(text, Instant::now());
                self.say(&lines);
            }
        }
    }

    /// Follows a pull, a push or a build to its end.
    pub(crate) async fn follow(
        &mut self,
        events: &mut ImageEvents,
    ) -> Result<ImportedImage, ClientError> {
        events.finish(|event| self.event(event)).await
    }

    /// Waits for `work`, and tells meanwhile how many bytes of `what` were sent.
    pub(crate) async fn sending<T>(
        &mut self,
        what: &str,
        sent: &Sent,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        let mut ticks = interval(TICK);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = ticks.tick() => self.sent(what, sent),
            }
        }
    }

    fn sent(&mut self, what: &str, sent: &Sent) {
        match &mut self.shown {
            Shown::Live(live) => live.moved(what, sent.bytes(), sent.total),
            Shown::Plain(plain) => {
                let lines = plain.moved(what, sent.bytes(), sent.total, Instant::now());
                self.say(&lines);
            }
        }
    }

    fn say(&mut self, lines: &[String]) {
        for line in lines {
            self.output.say(line);
        }
    }
}

/// How many bytes have been sent, of how many if that is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent {
    bytes: Arc<AtomicU64>,
    total: Option<u64>,
}

impl Sent {
    pub(crate) fn of(total: Option<u64>) -> Self {
        Self { bytes: Arc::default(), total }
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// What all layers of a pull are together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layers {
    bytes: u64,
    total: u64,
    count: usize,
    unpacked: usize,
    /// Nothing is downloaded any more.
    is_here: bool,
}

impl Layers {
    fn of(layers: &[PulledLayer]) -> Self {
        let with = |stages: &[LayerStage]| {
            layers.iter().filter(|layer| stages.contains(&layer.stage)).count()
        };
        let sum = |of: fn(&PulledLayer) -> u64| layers.iter().map(of).fold(0, u64::saturating_add);
        Self {
            bytes: sum(|layer| layer.bytes.min(layer.total)),
            total: sum(|layer| layer.total),
            count: layers.len(),
            unpacked: with(&[LayerStage::Unpacked]),
            is_here: with(&[LayerStage::Waiting, LayerStage::Downloading]) == 0,
        }
    }

    /// `2 of 5 layers`, and what is being done.
    fn words(self) -> String {
        let Self { count, unpacked, .. } = self;
        let doing = if unpacked == count {
            ""
        } else if self.is_here {
            ", unpacking"
        } else {
            ", downloading"
        };
        format!("{unpacked} of {count} layers{doing}")
    }
}

/// A length of time as steps have it: `12.3s`, `4m05s`.
fn seconds(milliseconds: u64) -> String {
    let tenths = milliseconds.saturating_add(50) / 100;
    if tenths < 600 {
        format!("{}.{}s", tenths / 10, tenths % 10)
    } else {
        format!("{}m{:02}s", tenths / 600, tenths % 600 / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_told_together() {
        let layer = |bytes, stage| PulledLayer { digest: "d".to_owned(), bytes, total: 10, stage };
        let some = [layer(10, LayerStage::Unpacked), layer(4, LayerStage::Downloading)];
        let layers = Layers::of(&some);
        assert_eq!((layers.bytes, layers.total), (14, 20));
        assert_eq!(layers.words(), "1 of 2 layers, downloading");
        let here = [layer(10, LayerStage::Unpacked), layer(10, LayerStage::Downloaded)];
        assert_eq!(Layers::of(&here).words(), "1 of 2 layers, unpacking");
        assert_eq!(Layers::of(&some[..1]).words(), "1 of 1 layers");
    }

    #[test]
    fn steps_take_seconds_and_minutes() {
        for (milliseconds, expected) in
            [(0, "0.0s"), (49, "0.0s"), (1250, "1.3s"), (59_949, "59.9s"), (245_000, "4m05s")]
        {
            assert_eq!(seconds(milliseconds), expected);
        }
    }

    #[tokio::test]
    async fn what_is_sent_is_told_once_to_those_who_read_it_later() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        let sent = Sent::of(Some(2000));
        sent.add(1000);
        let mut progress = Progress::new(&mut output, Detail::Some);
        let done = progress.sending("a.tar", &sent, tokio::time::sleep(TICK * 3)).await;
        assert_eq!(done, ());
        sent.add(1000);
        progress.sending("a.tar", &sent, tokio::time::sleep(TICK * 3)).await;
        let told = "osb: sending a.tar (2.0 kB)\nosb: sent a.tar, which the server takes in\n";
        assert_eq!(String::from_utf8(err).unwrap(), told);
    }
}
