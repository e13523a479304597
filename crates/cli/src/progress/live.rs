use std::{collections::BTreeMap, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use opensandbox::api::images::ImageEvent;

use super::{
    Layers, seconds,
    tail::{Tail, clean},
};

/// How many lines of a running step are shown, and how many if it failed.
const SHOWN: usize = 4;
const TAIL: usize = 40;
/// How many steps are shown at once.
const STEPS: usize = 16;
const TURN: Duration = Duration::from_millis(100);

/// Bars and lines at the end of a terminal, which are drawn anew as things go on.
#[derive(Debug)]
pub(super) struct Live {
    screen: MultiProgress,
    /// What goes on outside of a build.
    bar: Option<(Subject, ProgressBar)>,
    steps: BTreeMap<String, Step>,
}

/// What a bar is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Stage,
    Bytes(String),
}

#[derive(Debug)]
struct Step {
    title: String,
    bar: ProgressBar,
    lines: Vec<ProgressBar>,
    tail: Tail,
}

impl Live {
    pub(super) fn new() -> Self {
        Self { screen: MultiProgress::new(), bar: None, steps: BTreeMap::new() }
    }

    pub(super) fn event(&mut self, event: &ImageEvent) {
        match event {
            ImageEvent::Resolving { name } => self.stage(&format!("{name}: asking the registry")),
            ImageEvent::Pulling { name, layers } => {
                let layers = Layers::of(layers);
                let bar = self.bytes(name, Some(layers.total));
                bar.set_position(layers.bytes);
                bar.set_message(layers.words());
            }
            ImageEvent::Pushing { bytes, total } => {
                let bar = self.bytes("pushing", Some(*total));
                bar.set_position(*bytes);
            }
            ImageEvent::Warning { line, message } => {
                self.print(&format!("warning: line {line}: {}", clean(message)));
            }
            ImageEvent::Began { step, title } => self.begin(step, title),
            ImageEvent::Cached { step } => {
                if let Some(step) = self.end(step) {
                    self.print(&format!("{:>9}  {}", "CACHED", step.title));
                }
            }
            ImageEvent::Output { step, text, .. } => {
                if let Some(step) = self.steps.get_mut(step) {
                    step.say(&self.screen, text);
                }
            }
            ImageEvent::Done { step, milliseconds } => {
                if let Some(step) = self.end(step) {
                    let took = format!("DONE {}", seconds(*milliseconds));
                    self.print(&format!("{took:>9}  {}", step.title));
                }
            }
            ImageEvent::Failed { step, milliseconds } => {
                if let Some(step) = self.end(step) {
                    let took = format!("FAILED {}", seconds(*milliseconds));
                    self.print(&format!("{took:>9}  {}", step.title));
                    for line in step.tail.lines() {
                        self.print(&format!("{:>9}  {line}", ""));
                    }
                }
            }
            ImageEvent::Image(_) | ImageEvent::Error(_) => self.clear(),
        }
    }

    /// One line that says what goes on.
    pub(super) fn stage(&mut self, text: &str) {
        let bar = self.bar(&Subject::Stage, || {
            turning(ProgressBar::new_spinner().with_style(style("{spinner} {wide_msg}")))
        });
        bar.set_message(clean(text));
    }

    pub(super) fn moved(&mut self, what: &str, bytes: u64, total: Option<u64>) {
        let bar = self.bytes(what, total);
        bar.set_position(bytes);
        if total.is_some_and(|total| bytes >= total) {
            bar.set_message("sent, the server takes it in");
        }
    }

    /// A bar for the bytes of something.
    fn bytes(&mut self, what: &str, total: Option<u64>) -> ProgressBar {
        let what = clean(what);
        let shown = what.clone();
        let bar = self.bar(&Subject::Bytes(what), move || {
            let shape = if total.is_some() {
                "{spinner} {prefix} [{bar:24}] {decimal_bytes} of {decimal_total_bytes} {msg}"
            } else {
                "{spinner} {prefix} {decimal_bytes} {msg}"
            };
            let style = style(shape).progress_chars("=> ");
            turning(ProgressBar::new(0).with_style(style).with_prefix(shown))
        });
        if let Some(total) = total {
            bar.set_length(total);
        }
        bar
    }

    fn bar(&mut self, subject: &Subject, make: impl FnOnce() -> ProgressBar) -> ProgressBar {
        if let Some((_, bar)) = self.bar.as_ref().filter(|(known, _)| known == subject) {
            return bar.clone();
        }
        self.clear();
        let bar = self.screen.add(make());
        self.bar = Some((subject.clone(), bar.clone()));
        bar
    }

    fn clear(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
            self.screen.remove(&bar);
        }
    }

    fn begin(&mut self, id: &str, title: &str) {
        self.clear();
        if self.steps.len() >= STEPS {
            return;
        }
        let title = clean(title);
        let style = style("{spinner} {elapsed:>7}  {wide_msg}");
        let bar = ProgressBar::new_spinner().with_style(style).with_message(title.clone());
        let bar = turning(self.screen.add(bar));
        let step = Step { title, bar, lines: Vec::new(), tail: Tail::new(TAIL) };
        self.steps.insert(id.to_owned(), step);
    }

    fn end(&mut self, id: &str) -> Option<Step> {
        self.clear();
        let step = self.steps.remove(id)?;
        for bar in step.lines.iter().rev().chain([&step.bar]) {
            bar.finish_and_clear();
            self.screen.remove(bar);
        }
        Some(step)
    }

    /// A line that stays.
    fn print(&self, line: &str) {
        // Whether anybody can see it changes nothing.
        drop(self.screen.println(line));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.screen.clear());
    }
}

impl Step {
    fn say(&mut self, screen: &MultiProgress, text: &str) {
        self.tail.push(text);
        if self.lines.len() < SHOWN {
            let last = self.lines.last().unwrap_or(&self.bar);
            let line = ProgressBar::new_spinner().with_style(style("           {wide_msg:.dim}"));
            self.lines.push(screen.insert_after(last, line));
        }
        let shown: Vec<_> = self.tail.lines().rev().take(self.lines.len()).collect();
        for (bar, line) in self.lines.iter().zip(shown.iter().rev()) {
            bar.set_message((*line).to_owned());
        }
    }
}

/// A bar that shows that something happens.
fn turning(bar: ProgressBar) -> ProgressBar {
    bar.enable_steady_tick(TURN);
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use opensandbox::api::images::{LayerStage, OutputStream, PulledLayer};

    use super::*;

    #[test]
    fn every_shape_can_be_drawn() {
        for template in [
            "{spinner} {wide_msg}",
            "{spinner} {prefix} [{bar:24}] {decimal_bytes} of {decimal_total_bytes} {msg}",
            "{spinner} {elapsed:>7}  {wide_msg}",
            "           {wide_msg:.dim}",
        ] {
            ProgressStyle::with_template(template).unwrap();
        }
    }

    #[test]
    fn nothing_is_left_of_what_has_ended() {
        let mut live = Live::new();
        let id = || "0.1".to_owned();
        let layer = PulledLayer {
            digest: "d".to_owned(),
            bytes: 1,
            total: 2,
            stage: LayerStage::Downloading,
        };
        live.stage("wait");
        live.event(&ImageEvent::Pulling { name: "debian".to_owned(), layers: vec![layer] });
        assert!(live.bar.is_some());
        live.event(&ImageEvent::Began { step: id(), title: "[1/1] RUN make".to_owned() });
        assert!(live.bar.is_none());
        for number in 0..9 {
            let text = format!("line {number}");
            live.event(&ImageEvent::Output { step: id(), stream: OutputStream::Stderr, text });
        }
        let step = &live.steps["0.1"];
        let shown: Vec<_> = step.lines.iter().map(ProgressBar::message).collect();
        assert_eq!(shown, ["line 5", "line 6", "line 7", "line 8"]);
        live.event(&ImageEvent::Failed { step: id(), milliseconds: 5 });
        assert!(live.steps.is_empty());
    }
}
