use std::{collections::BTreeMap, time::Duration};

use opensandbox::api::images::ImageEvent;
use tokio::time::Instant;

use super::{
    Detail, Layers, seconds,
    tail::{Tail, clean},
};
use crate::size;

/// How long nothing is said of what only goes on.
const SILENCE: Duration = Duration::from_secs(10);
/// How many lines of a step are shown if it failed.
const TAIL: usize = 40;
/// How many steps are known of at once. There are never as many.
const STEPS: usize = 256;

/// Lines for those who read them later.
#[derive(Debug)]
pub(super) struct Plain {
    detail: Detail,
    steps: BTreeMap<String, Step>,
    /// What was spoken of last, and when.
    subject: String,
    at: Option<Instant>,
}

#[derive(Debug)]
struct Step {
    title: String,
    /// It was said that it has begun.
    is_known: bool,
    tail: Tail,
}

impl Plain {
    pub(super) fn new(detail: Detail) -> Self {
        Self { detail, steps: BTreeMap::new(), subject: String::new(), at: None }
    }

    pub(super) fn event(&mut self, event: &ImageEvent, now: Instant) -> Vec<String> {
        match event {
            ImageEvent::Resolving { name } => self.begin(&format!("pulling {}", clean(name)), now),
            ImageEvent::Pulling { name, layers } => {
                let name = clean(name);
                let mut lines = self.begin(&format!("pulling {name}"), now);
                let layers = Layers::of(layers);
                let (bytes, total) = (size::of(layers.bytes), size::of(layers.total));
                lines.extend(
                    self.sometimes(now, || {
                        format!("{name}: {bytes} of {total}, {}", layers.words())
                    }),
                );
                lines
            }
            ImageEvent::Pushing { bytes, total } => {
                let mut lines = self.begin("pushing", now);
                let (bytes, total) = (size::of(*bytes), size::of(*total));
                lines.extend(self.sometimes(now, || format!("pushed {bytes} of {total}")));
                lines
            }
            ImageEvent::Warning { line, message } => {
                vec![format!("warning: line {line}: {}", clean(message))]
            }
            ImageEvent::Began { step, title } => {
                if self.steps.len() < STEPS {
                    let new = Step { title: clean(title), is_known: false, tail: Tail::new(TAIL) };
                    self.steps.insert(step.clone(), new);
                }
                Vec::new()
            }
            ImageEvent::Cached { step } => {
                self.end(step).map(|step| format!("CACHED {}", step.title)).into_iter().collect()
            }
            ImageEvent::Output { step, text, .. } => self.output(step, text),
            ImageEvent::Done { step, milliseconds } => {
                let took = seconds(*milliseconds);
                let done = |step: Step| format!("DONE {took} {}", step.title);
                self.end(step).map(done).into_iter().collect()
            }
            ImageEvent::Failed { step, milliseconds } => {
                let Some(step) = self.end(step) else { return Vec::new() };
                let mut lines = Vec::new();
                if self.detail == Detail::Some {
                    lines.extend(step.tail.lines().map(|line| format!("  {line}")));
                }
                lines.push(format!("FAILED {} {}", seconds(*milliseconds), step.title));
                lines
            }
            ImageEvent::Image(_) | ImageEvent::Error(_) => Vec::new(),
        }
    }

    pub(super) fn stage(&mut self, text: &str, now: Instant) -> Vec<String> {
        self.begin(&clean(text), now)
    }

    pub(super) fn status(&mut self, text: &str, now: Instant) -> Vec<String> {
        self.sometimes(now, || clean(text)).into_iter().collect()
    }

    pub(super) fn moved(
        &mut self,
        what: &str,
        bytes: u64,
        total: Option<u64>,
        now: Instant,
    ) -> Vec<String> {
        if total.is_some_and(|total| bytes >= total) {
            return self.begin(&format!("sent {}, which the server takes in", clean(what)), now);
        }
        let of = total.map(|total| format!(" ({})", size::of(total))).unwrap_or_default();
        let mut lines = self.begin(&format!("sending {}{of}", clean(what)), now);
        lines.extend(self.sometimes(now, || format!("sent {}", size::of(bytes))));
        lines
    }

    /// Something else is spoken of from now on.
    fn begin(&mut self, subject: &str, now: Instant) -> Vec<String> {
        if self.subject == subject {
            return Vec::new();
        }
        subject.clone_into(&mut self.subject);
        self.at = Some(now);
        vec![subject.to_owned()]
    }

    /// What is said if nothing was for a while.
    fn sometimes(&mut self, now: Instant, text: impl FnOnce() -> String) -> Option<String> {
        if self.at.is_some_and(|at| now.duration_since(at) < SILENCE) {
            return None;
        }
        self.at = Some(now);
        Some(text())
    }

    fn output(&mut self, step: &str, text: &str) -> Vec<String> {
        let Some(step) = self.steps.get_mut(step) else { return Vec::new() };
        let mut lines = Vec::new();
        if !step.is_known {
            step.is_known = true;
            lines.push(step.title.clone());
        }
        step.tail.push(text);
        if self.detail == Detail::All {
            lines.push(format!("  {}", clean(text)));
        }
        lines
    }

    fn end(&mut self, step: &str) -> Option<Step> {
        self.steps.remove(step)
    }
}

#[cfg(test)]
mod tests {
    use opensandbox::api::images::{LayerStage, OutputStream, PulledLayer};

    use super::*;

    fn began(step: &str, title: &str) -> ImageEvent {
        ImageEvent::Began { step: step.to_owned(), title: title.to_owned() }
    }

    fn said(step: &str, text: &str) -> ImageEvent {
        let stream = OutputStream::Stdout;
        ImageEvent::Output { step: step.to_owned(), stream, text: text.to_owned() }
    }

    fn build(detail: Detail) -> Vec<String> {
        let mut plain = Plain::new(detail);
        let id = |step: &str| step.to_owned();
        let events = [
            ImageEvent::Warning { line: 3, message: "hardly meant".to_owned() },
            began("0.1", "[1/3] FROM debian"),
            ImageEvent::Cached { step: id("0.1") },
            began("0.2", "[2/3] RUN make"),
            said("0.2", "cc a.c"),
            said("0.2", "cc b.c"),
            ImageEvent::Done { step: id("0.2"), milliseconds: 1250 },
            began("0.3", "[3/3] RUN make test"),
            said("0.3", "it does not work"),
            ImageEvent::Failed { step: id("0.3"), milliseconds: 90 },
            said("0.9", "of nobody"),
        ];
        let now = Instant::now();
        events.iter().flat_map(|event| plain.event(event, now)).collect()
    }

    #[test]
    fn a_build_is_a_line_for_each_thing_that_matters() {
        assert_eq!(
            build(Detail::Some),
            [
                "warning: line 3: hardly meant",
                "CACHED [1/3] FROM debian",
                "[2/3] RUN make",
                "DONE 1.3s [2/3] RUN make",
                "[3/3] RUN make test",
                "  it does not work",
                "FAILED 0.1s [3/3] RUN make test",
            ]
        );
        let all = build(Detail::All);
        assert!(all.contains(&"  cc b.c".to_owned()));
        assert_eq!(all.iter().filter(|line| line.contains("not work")).count(), 1);
    }

    #[test]
    fn a_pull_speaks_up_now_and_then() {
        let mut plain = Plain::new(Detail::Some);
        let start = Instant::now();
        let mut at =
            |seconds, event: &ImageEvent| plain.event(event, start + Duration::from_secs(seconds));
        let name = || "debian".to_owned();
        let layer = PulledLayer {
            digest: "d".to_owned(),
            bytes: 1000,
            total: 2000,
            stage: LayerStage::Downloading,
        };
        let pulling = ImageEvent::Pulling { name: name(), layers: vec![layer] };
        assert_eq!(at(0, &ImageEvent::Resolving { name: name() }), ["pulling debian"]);
        assert!(at(1, &pulling).is_empty() && at(9, &pulling).is_empty());
        let told = "debian: 1.0 kB of 2.0 kB, 0 of 1 layers, downloading";
        assert_eq!(at(11, &pulling), [told]);
        assert!(at(12, &pulling).is_empty());
        let other = ImageEvent::Resolving { name: "alpine".to_owned() };
        assert_eq!(at(13, &other), ["pulling alpine"]);
    }
}
