//! What has come of a cell so far, from the messages of its kernel.

use std::{collections::VecDeque, fmt};

use osb_api::execd::{Event, Failure};
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{channels::Heard, message::Message};
use crate::{
    code::{
        said::Said,
        shapes::{Shape, Shapes, TRACE, failure, is_json, shapes},
    },
    output::Budget,
};

/// The most bytes of text in one event. Escaped as JSON each can take six.
const PIECE: usize = 64 << 10;

/// The most media types of one thing that is shown.
const TYPES: usize = 64;

/// The most bytes of what a kernel wants its client to do.
const WISHES: usize = 64 << 10;

/// A cell that was sent to a kernel.
#[derive(Debug)]
pub(super) struct Progress {
    /// The id of the request, which is the parent of all that comes of it.
    id: String,
    reply: Option<Reply>,
    is_idle: bool,
    has_failed: bool,
    /// An error that was in the answer, which most kernels have told everybody before.
    unsaid: Option<Failure>,
    /// The last that was printed on the standard error.
    complaint: String,
    /// What came, and nobody has been told.
    items: VecDeque<Item>,
    /// How many bytes that are.
    held: usize,
}

/// How a kernel has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    Done,
    /// The cell has made the kernel end itself.
    Leaves,
    /// It was not executed, because of what came before it.
    Aborted,
}

/// Something to tell.
#[derive(Debug)]
enum Item {
    Printed { stream: Stream, text: String, at: usize },
    Said(Said),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stream {
    Stdout,
    Stderr,
}

impl Progress {
    pub(super) fn of(id: String) -> Self {
        Self {
            id,
            reply: None,
            is_idle: false,
            has_failed: false,
            unsaid: None,
            complaint: String::new(),
            items: VecDeque::new(),
            held: 0,
        }
    }

    /// Notes a message.
    pub(super) fn note(&mut self, heard: Heard, budget: &Budget) {
        match heard {
            Heard::Answer(message) => self.answered(&message),
            // What is too long says at least that there is an answer.
            Heard::LongAnswer => self.reply = self.reply.or(Some(Reply::Done)),
            Heard::News(message) => self.news(&message, budget),
            Heard::LongNews(length) => {
                let text = format!("[a message of {length} bytes is too long to be passed on]\n");
                self.print(Stream::Stderr, text);
            }
            Heard::Obeyed | Heard::Nothing => {}
        }
        if self.outcome().is_some() {
            self.say_the_unsaid();
        }
    }

    /// Tells of an error that some kernels say nowhere else, and some of them not in words.
    fn say_the_unsaid(&mut self) {
        let Some(failure) = self.unsaid.take().filter(|_| !self.has_failed) else { return };
        let is_mute = failure.ename.is_empty() && failure.evalue.is_empty();
        let failure = if is_mute { complained(&self.complaint) } else { failure };
        self.say(Said::Failed(failure));
    }

    fn answered(&mut self, message: &Message) {
        if message.parent != self.id || message.kind != "execute_reply" {
            return;
        }
        let Answer { status, payload } = message.content().unwrap_or_default();
        let payload = payload.filter(|payload| payload.get().len() <= WISHES);
        let wishes =
            payload.and_then(|payload| serde_json::from_str::<Vec<Wish>>(payload.get()).ok());
        let leaves = wishes
            .unwrap_or_default()
            .iter()
            .any(|wish| wish.source == "ask_exit" && !wish.keepkernel);
        self.reply = Some(match status.as_str() {
            "abort" | "aborted" => Reply::Aborted,
            _ if leaves => Reply::Leaves,
            _ => Reply::Done,
        });
        let thrown = || message.content::<Thrown<'_>>().unwrap_or_default().into();
        self.unsaid = (status == "error").then(thrown);
    }

    fn news(&mut self, message: &Message, budget: &Budget) {
        let is_own = message.parent == self.id;
        match message.kind.as_str() {
            // Threads that an earlier cell has started print as if they were part of it.
            "stream" => {
                if let Some(Printed { name, text }) = message.content() {
                    let admitted = budget.admit(text.as_bytes()).len();
                    let mut text = text;
                    text.truncate(text.floor_char_boundary(admitted));
                    if name == Stream::Stderr {
                        let end = text.floor_char_boundary(PIECE.min(text.len()));
                        text.get(..end).unwrap_or_default().clone_into(&mut self.complaint);
                    }
                    self.print(name, text);
                    self.notice(budget);
                }
            }
            // Nor does an interrupted cell of some kernels know whose error it is.
            "error" if is_own || message.parent.is_empty() => {
                let thrown: Thrown<'_> = message.content().unwrap_or_default();
                self.show(Said::Failed(thrown.into()), budget);
            }
            _ if !is_own => {}
            "status" => self.is_idle |= is_idle(message),
            "execute_result" => {
                if let Some(Data { data, execution_count }) = message.content() {
                    let count = execution_count.and_then(|count| count.get().parse().ok());
                    let count = count.unwrap_or(0);
                    self.show(Said::Result { count, shapes: bundle(data) }, budget);
                }
            }
            "display_data" | "update_display_data" => {
                if let Some(Data { data, .. }) = message.content() {
                    self.show(Said::Display { shapes: bundle(data) }, budget);
                }
            }
            "clear_output" => self.show(Said::Clear, budget),
            _ => {}
        }
    }

    fn print(&mut self, stream: Stream, text: String) {
        if !text.is_empty() {
            self.held += text.len();
            self.items.push_back(Item::Printed { stream, text, at: 0 });
        }
    }

    /// Says something that a cell can say as often as it likes. That it failed is to be known in any
    /// case.
    fn show(&mut self, said: Said, budget: &Budget) {
        let is_wanted = matches!(said, Said::Failed(_)) && !self.has_failed;
        if budget.covers(weight(&said)) || is_wanted {
            self.say(said);
        }
        self.notice(budget);
    }

    /// Says that something was dropped, once.
    fn notice(&mut self, budget: &Budget) {
        if let Some(notice) = budget.notice() {
            self.print(Stream::Stderr, notice);
        }
    }

    fn say(&mut self, said: Said) {
        self.has_failed |= matches!(said, Said::Failed(_));
        self.held += weight(&said);
        self.items.push_back(Item::Said(said));
    }

    /// How the kernel has answered, once that is all: what it says to everybody comes on another
    /// way than its answer.
    pub(super) fn outcome(&self) -> Option<Reply> {
        self.reply.filter(|_| self.is_idle)
    }

    /// Whether only a part of the end is there; the rest may never come.
    pub(super) fn is_nearly_over(&self) -> bool {
        self.reply.is_some() != self.is_idle
    }

    /// Does without the rest.
    pub(super) fn be_over(&mut self) {
        self.is_idle = true;
        self.reply = self.reply.or(Some(Reply::Done));
        self.say_the_unsaid();
    }

    /// How many bytes wait to be told.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn has_news(&self) -> bool {
        !self.items.is_empty()
    }

    pub(super) fn forget(&mut self) {
        self.items = VecDeque::new();
        self.held = 0;
    }

    /// Appends what came as events until there are about so many bytes.
    pub(super) fn frame(&mut self, most: usize, now: i64, frames: &mut Vec<u8>) {
        while frames.len() < most {
            match self.items.pop_front() {
                None => return self.held = 0,
                Some(Item::Said(said)) => {
                    self.held = self.held.saturating_sub(weight(&said));
                    said.frame(now, frames);
                }
                Some(Item::Printed { stream, text, at }) => {
                    let end = text.floor_char_boundary((at + PIECE).min(text.len()));
                    let piece = text.get(at..end).unwrap_or_default();
                    let event = match stream {
                        Stream::Stdout => Event::stdout(piece, now),
                        Stream::Stderr => Event::stderr(piece, now),
                    };
                    event.frame(frames);
                    if end < text.len() {
                        self.items.push_front(Item::Printed { stream, text, at: end });
                    } else {
                        self.held = self.held.saturating_sub(text.len());
                    }
                }
            }
        }
    }
}

/// Whether an answer says that what was to be done was done.
pub(super) fn has_succeeded(answer: &Message) -> bool {
    answer.content().is_some_and(|Answer { status, .. }| status == "ok")
}

/// Whether a kernel says that it has done what it was asked for.
pub(super) fn is_idle(message: &Message) -> bool {
    let status: Option<Status> = message.content();
    message.kind == "status" && status.is_some_and(|status| status.execution_state == "idle")
}

/// An error of which only what was printed is known: `TypeError: x is not a function`, somewhere
/// above where it happened, or nothing of that form.
fn complained(printed: &str) -> Failure {
    let is_name = |name: &str| {
        ["Error", "Exception"].iter().any(|kind| name.ends_with(kind))
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let named = printed.lines().filter_map(|line| line.split_once(": "));
    let mut named = named.map(|(name, text)| (name.trim_start_matches("Uncaught "), text));
    let first = || printed.lines().find(|line| !line.trim().is_empty());
    let (ename, evalue) = named
        .find(|(name, _)| is_name(name))
        .unwrap_or_else(|| ("Error", first().unwrap_or("the cell has failed")));
    let lines = printed.lines().map(str::to_owned);
    failure(ename.to_owned(), evalue.to_owned(), lines)
}

/// How much memory something takes that is to be told, about.
fn weight(said: &Said) -> usize {
    let length = |(name, shape): (&String, &Shape)| 64 + name.len() + shape.as_str().len();
    let of = |shapes: &Shapes| shapes.iter().map(length).sum::<usize>();
    64 + match said {
        Said::Result { shapes, .. } | Said::Display { shapes } => of(shapes),
        Said::Failed(Failure { ename, evalue, traceback }) => {
            let lines = traceback.iter().map(|line| 24 + line.len());
            ename.len() + evalue.len() + lines.sum::<usize>()
        }
        Said::Clear | Said::Shown | Said::Finished | Said::Nonsense => 0,
    }
}

/// What a kernel shows, by media type.
fn bundle(Bundle(data): Bundle<'_>) -> Shapes {
    shapes(data.into_iter().map(|(kind, content)| {
        let is_json = is_json(&kind);
        // A text has a mark at both ends.
        let marks = if content.get().starts_with('"') { 2 } else { 0 };
        (kind, content.get().len() - marks, move || shown(content, is_json))
    }))
}

fn shown(content: &RawValue, is_json: bool) -> Shape {
    let written = content.get();
    let text = if is_json { None } else { serde_json::from_str(written).ok() };
    let text = text.map(|Joined(text)| Shape::Text(text));
    text.or_else(|| Shape::json(written)).unwrap_or_else(|| Shape::Text(written.to_owned()))
}

/// A text, which may come as its lines.
struct Joined(String);

impl<'de> Deserialize<'de> for Joined {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lines;
        impl<'de> Visitor<'de> for Lines {
            type Value = Joined;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text or its lines")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Joined, E> {
                Ok(Joined(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut lines: A) -> Result<Joined, A::Error> {
                let mut text = String::new();
                while let Some(line) = lines.next_element::<String>()? {
                    text.push_str(&line);
                }
                Ok(Joined(text))
            }
        }
        deserializer.deserialize_any(Lines)
    }
}

#[derive(Debug, Deserialize)]
struct Printed {
    name: Stream,
    text: String,
}

#[derive(Debug, Deserialize)]
struct Status {
    execution_state: String,
}

#[derive(Debug, Deserialize)]
struct Data<'a> {
    #[serde(default, borrow)]
    data: Bundle<'a>,
    #[serde(default, borrow)]
    execution_count: Option<&'a RawValue>,
}

/// The first media types of something, which has a few.
#[derive(Debug, Default)]
struct Bundle<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Bundle<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Types;
        impl<'de> Visitor<'de> for Types {
            type Value = Bundle<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("contents by media type")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while all.len() < TYPES
                    && let Some(pair) = map.next_entry::<String, &RawValue>()?
                {
                    all.push(pair);
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Bundle(all))
            }
        }
        deserializer.deserialize_map(Types)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer<'a> {
    status: String,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

/// What a kernel wants its client to do.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wish {
    source: String,
    keepkernel: bool,
}

/// An error, whatever a kernel makes of its parts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Thrown<'a> {
    #[serde(borrow)]
    ename: Option<&'a RawValue>,
    #[serde(borrow)]
    evalue: Option<&'a RawValue>,
    #[serde(borrow)]
    traceback: Option<&'a RawValue>,
}

impl From<Thrown<'_>> for Failure {
    fn from(Thrown { ename, evalue, traceback }: Thrown<'_>) -> Self {
        let part = |said: Option<&RawValue>| said.map(text).unwrap_or_default();
        let lines = traceback.and_then(|lines| serde_json::from_str(lines.get()).ok());
        let First(lines) = lines.unwrap_or_default();
        failure(part(ename), part(evalue), lines.into_iter().map(text))
    }
}

/// A text as it is, and all else as it is written.
fn text(said: &RawValue) -> String {
    match said.get() {
        "null" => String::new(),
        written => serde_json::from_str(written).unwrap_or_else(|_| written.to_owned()),
    }
}

/// The first lines of something, which has a few.
#[derive(Debug, Default)]
struct First<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for First<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lines;
        impl<'de> Visitor<'de> for Lines {
            type Value = First<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("lines")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut lines: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while all.len() < TRACE
                    && let Some(line) = lines.next_element()?
                {
                    all.push(line);
                }
                while lines.next_element::<IgnoredAny>()?.is_some() {}
                Ok(First(all))
            }
        }
        deserializer.deserialize_seq(Lines)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn news(kind: &str, parent: &str, content: &Value) -> Heard {
        Heard::News(Message::of(kind, parent, content))
    }

    fn answer(content: &Value) -> Heard {
        Heard::Answer(Message::of("execute_reply", "1", content))
    }

    fn idle() -> Heard {
        news("status", "1", &json!({"execution_state": "idle"}))
    }

    /// What comes of messages: the cell, and the events as they are written, without their time.
    fn heard(all: impl IntoIterator<Item = Heard>) -> (Progress, String) {
        let mut progress = Progress::of("1".to_owned());
        let budget = Budget::new(1 << 20);
        for heard in all {
            progress.note(heard, &budget);
        }
        let mut frames = Vec::new();
        progress.frame(usize::MAX, 0, &mut frames);
        let text = String::from_utf8(frames).unwrap();
        (progress, text.replace(",\"timestamp\":0}", "}").replace("\n\n", "\n"))
    }

    #[test]
    fn every_kind_of_message_becomes_events() {
        let (progress, events) = heard([
            news("status", "1", &json!({"execution_state": "busy"})),
            news("stream", "1", &json!({"name": "stdout", "text": "a\nb"})),
            news("stream", "1", &json!({"name": "stderr", "text": "c"})),
            news("display_data", "1", &json!({"data": {"image/svg+xml": ["<svg>", "</svg>"]}})),
            news("update_display_data", "1", &json!({"data": {"application/json": ["a"]}})),
            news("clear_output", "1", &json!({"wait": true})),
            news(
                "execute_result",
                "1",
                &json!({"execution_count": 3, "data": {"text/plain": "2", "text/html": "<b>2</b>"}}),
            ),
            news("comm_open", "1", &json!({})),
            answer(&json!({"status": "ok"})),
            idle(),
        ]);
        insta_like(
            &events,
            &[
                r#"{"type":"stdout","text":"a\nb"}"#,
                r#"{"type":"stderr","text":"c"}"#,
                r#"{"type":"result","results":{"image/svg+xml":"<svg></svg>"}}"#,
                r#"{"type":"result","results":{"application/json":["a"]}}"#,
                r#"{"type":"status","text":"clear_output"}"#,
                r#"{"type":"execution_count","execution_count":3}"#,
                r#"{"type":"result","results":{"text":"2","text/html":"<b>2</b>"}}"#,
            ],
        );
        assert_eq!(progress.outcome(), Some(Reply::Done));
        assert_eq!(progress.held(), 0);
    }

    fn insta_like(events: &str, expected: &[&str]) {
        assert_eq!(events.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_error_is_told_once_wherever_it_is_said() {
        let thrown = json!({"status": "error", "ename": "E", "evalue": 5, "traceback": ["a", "b"]});
        let told = r#"{"type":"error","error":{"ename":"E","evalue":"5","traceback":["a","b"]}}"#;
        for mut messages in [
            vec![news("error", "1", &thrown), answer(&thrown)],
            vec![answer(&thrown), news("error", "1", &thrown)],
            vec![answer(&thrown)],
        ] {
            messages.push(idle());
            let (_, events) = heard(messages);
            insta_like(&events, &[r#"{"type":"status","text":"error"}"#, told]);
        }
    }

    #[test]
    fn an_error_without_words_has_those_that_were_printed() {
        let failed = json!({"status": "error"});
        for (printed, ename, evalue) in [
            ("a.js:2\nthrow x;\n^\n\nTypeError: no: x\n    at a.js:2:7\n", "TypeError", "no: x"),
            (
                "1:5 - Type 'number' is not assignable.\n",
                "Error",
                "1:5 - Type 'number' is not assignable.",
            ),
            ("", "Error", "the cell has failed"),
        ] {
            let mut all = vec![news("stream", "1", &json!({"name": "stderr", "text": printed}))];
            all.extend([answer(&failed), idle()]);
            let (_, events) = heard(all);
            let expected = json!({"ename": ename, "evalue": evalue}).to_string();
            assert!(events.contains(expected.trim_end_matches('}')), "{events}");
        }
    }

    #[test]
    fn a_cell_is_over_once_both_ways_say_so() {
        for (first, second) in
            [(answer(&json!({"status": "ok"})), idle()), (idle(), answer(&json!({"status": "ok"})))]
        {
            let (mut progress, _) = heard([first]);
            assert!(progress.outcome().is_none() && progress.is_nearly_over());
            progress.note(second, &Budget::new(1));
            assert!(progress.outcome().is_some() && !progress.is_nearly_over());
        }
    }

    #[test]
    fn what_belongs_to_another_cell_is_ignored_but_for_what_is_printed() {
        let (progress, events) = heard([
            news("stream", "0", &json!({"name": "stdout", "text": "thread"})),
            news("execute_result", "0", &json!({"data": {"text/plain": "0"}})),
            news("error", "0", &json!({"ename": "E"})),
            news("status", "0", &json!({"execution_state": "idle"})),
            Heard::Answer(Message::of("execute_reply", "0", &json!({"status": "ok"}))),
        ]);
        insta_like(&events, &[r#"{"type":"stdout","text":"thread"}"#]);
        assert!(progress.outcome().is_none() && !progress.is_nearly_over());
    }

    #[test]
    fn a_kernel_that_leaves_or_refuses_says_so_in_its_answer() {
        let leaves =
            json!({"status": "ok", "payload": [{"source": "ask_exit", "keepkernel": false}]});
        assert_eq!(heard([answer(&leaves), idle()]).0.outcome(), Some(Reply::Leaves));
        for status in ["abort", "aborted"] {
            let (progress, _) = heard([answer(&json!({ "status": status })), idle()]);
            assert_eq!(progress.outcome(), Some(Reply::Aborted));
        }
    }

    #[test]
    fn what_makes_no_sense_does_no_harm() {
        for kind in ["stream", "status", "execute_result", "display_data", "error", "clear_output"]
        {
            for content in [json!(null), json!([]), json!({"data": 1, "name": "x", "text": {}})] {
                heard([news(kind, "1", &content), answer(&content)]);
            }
        }
        let (_, events) = heard([Heard::LongNews(99)]);
        assert!(events.contains("99 bytes"));
        assert!(heard([Heard::LongAnswer, idle()]).0.outcome().is_some());
    }

    #[test]
    fn little_that_means_much_is_not_held() {
        let many: serde_json::Map<String, Value> =
            (0..10_000).map(|number| (format!("text/{number}"), json!("x"))).collect();
        let large = json!({"data": {"application/json": vec![0; 4 << 20], "text/plain": "x"}});
        let content = serde_json::to_vec(&json!({ "data": many })).unwrap();
        let Data { data, .. } = serde_json::from_slice(&content).unwrap();
        assert_eq!(bundle(data).len(), TYPES);
        let content = serde_json::to_vec(&large).unwrap();
        let Data { data, .. } = serde_json::from_slice(&content).unwrap();
        let shown = bundle(data);
        let said = shown["text"].as_str();
        assert!(shown.len() == 1 && said.contains("too large to be delivered"), "{said}");
        let Thrown { traceback, .. } =
            serde_json::from_str(r#"{"traceback": ["a", 1], "ename": null}"#).unwrap();
        let thrown = Thrown { traceback, ..Thrown::default() };
        assert_eq!(Failure::from(thrown).traceback, ["a", "1"]);
    }

    #[test]
    fn all_that_is_held_is_weighed() {
        let mut progress = Progress::of("1".to_owned());
        let long = "x".repeat(1 << 20);
        let budget = Budget::new(1 << 30);
        let thrown = json!({"ename": long, "evalue": long, "traceback": [long]});
        progress.note(news("error", "1", &thrown), &budget);
        assert!(progress.held() > 3 << 20);
        let tiny = json!({"data": {"application/json": vec![json!({}); 100_000]}});
        progress.note(news("display_data", "1", &tiny), &budget);
        assert!(progress.held() > (3 << 20) + 300_000);
        progress.frame(usize::MAX, 0, &mut Vec::new());
        assert_eq!(progress.held(), 0);
    }

    #[test]
    fn what_is_shown_ends_where_the_budget_does_but_for_the_first_error() {
        let mut progress = Progress::of("1".to_owned());
        let budget = Budget::new(200);
        for _ in 0..10 {
            progress.note(news("clear_output", "1", &json!({})), &budget);
        }
        let thrown = json!({"ename": "E", "evalue": "x".repeat(200)});
        for _ in 0..2 {
            progress.note(news("error", "1", &thrown), &budget);
        }
        let mut frames = Vec::new();
        progress.frame(usize::MAX, 0, &mut frames);
        let events = String::from_utf8(frames).unwrap();
        let count = |text: &str| events.matches(text).count();
        assert_eq!((count("clear_output"), count("the rest is dropped")), (3, 1));
        assert_eq!(count("\"ename\":\"E\""), 1);
    }

    #[test]
    fn long_output_is_cut_into_events_and_ends_where_the_budget_does() {
        let mut progress = Progress::of("1".to_owned());
        let text = "é".repeat(PIECE);
        let budget = Budget::new(2 * PIECE as u64 - 1);
        progress.note(news("stream", "1", &json!({"name": "stdout", "text": text})), &budget);
        let (mut all, mut frames) = (Vec::new(), Vec::new());
        while progress.has_news() {
            progress.frame(1, 0, &mut frames);
            assert!(frames.len() < PIECE + 100);
            all.append(&mut frames);
        }
        let all = String::from_utf8(all).unwrap();
        assert_eq!(all.matches('é').count() + all.matches("\\u00e9").count(), PIECE - 1);
        assert!(all.contains("the rest is dropped"));
    }
}
