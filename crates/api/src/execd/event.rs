use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use crate::null;

/// One event of a stream.
///
/// Streams are `text/event-stream` whose frames are bare JSON followed by an empty line; see
/// [`Event::frame`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Event {
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// The id in `init`, a line of output in `stdout` and `stderr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How many cells the context has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_count: Option<u64>,
    /// How long it ran, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_time: Option<u64>,
    /// The value of a cell by media type; plain text is under `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// In milliseconds since 1970.
    pub timestamp: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The first event; its text is the id of what runs.
    Init,
    /// Keeps the connection in use.
    Ping,
    Status,
    Stdout,
    Stderr,
    Result,
    ExecutionCount,
    /// It failed. The last event of a command.
    Error,
    /// It succeeded. The last event.
    ExecutionComplete,
    /// A kind that this version does not know; never sent.
    #[serde(other)]
    Unknown,
}

/// What went wrong in a command or a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Failure {
    /// The exception's name, or a constant from [`enames`].
    #[serde(default)]
    pub ename: String,
    /// The exception's text. For a command its exit code in digits, or `-1` after a signal.
    #[serde(default)]
    pub evalue: String,
    #[serde(default, deserialize_with = "null::or_default")]
    pub traceback: Vec<String>,
}

/// Names of failures that are not exceptions of a language.
pub mod enames {
    /// A command ended with another code than 0, by a signal, or could not be started.
    pub const COMMAND: &str = "CommandExecError";
    /// An interpreter has ended in the middle of a cell, and with it all that it knew.
    pub const INTERPRETER: &str = "InterpreterEnded";
    /// A cell ran for longer than it was allowed to.
    pub const TIMEOUT: &str = "CellTimeout";
}

impl Event {
    fn bare(kind: EventKind, timestamp: i64) -> Self {
        Self {
            kind,
            text: None,
            execution_count: None,
            execution_time: None,
            results: None,
            error: None,
            timestamp,
        }
    }

    pub fn init(id: impl Into<String>, timestamp: i64) -> Self {
        Self { text: Some(id.into()), ..Self::bare(EventKind::Init, timestamp) }
    }

    pub fn ping(timestamp: i64) -> Self {
        Self { text: Some("pong".to_owned()), ..Self::bare(EventKind::Ping, timestamp) }
    }

    pub fn stdout(text: impl Into<String>, timestamp: i64) -> Self {
        Self { text: Some(text.into()), ..Self::bare(EventKind::Stdout, timestamp) }
    }

    pub fn stderr(text: impl Into<String>, timestamp: i64) -> Self {
        Self { text: Some(text.into()), ..Self::bare(EventKind::Stderr, timestamp) }
    }

    pub fn error(failure: Failure, timestamp: i64) -> Self {
        Self { error: Some(failure), ..Self::bare(EventKind::Error, timestamp) }
    }

    pub fn count(execution_count: u64, timestamp: i64) -> Self {
        Self {
            execution_count: Some(execution_count),
            ..Self::bare(EventKind::ExecutionCount, timestamp)
        }
    }

    pub fn status(text: impl Into<String>, timestamp: i64) -> Self {
        Self { text: Some(text.into()), ..Self::bare(EventKind::Status, timestamp) }
    }

    pub fn complete(execution_time: u64, timestamp: i64) -> Self {
        Self {
            execution_time: Some(execution_time),
            ..Self::bare(EventKind::ExecutionComplete, timestamp)
        }
    }

    /// Appends the event as it travels: one line of JSON, then an empty line.
    ///
    /// Some clients cut the stream at every character that Unicode calls a line break, so those
    /// are written as escapes.
    pub fn frame(&self, out: &mut Vec<u8>) {
        frame(self, out);
    }

    /// Appends the event of something that a cell shows, by media type. Whoever has it as text need
    /// not make values of it, which take many times its memory.
    pub fn frame_result(results: &impl Serialize, timestamp: i64, out: &mut Vec<u8>) {
        #[derive(Serialize)]
        struct Shown<'a, T> {
            #[serde(rename = "type")]
            kind: EventKind,
            results: &'a T,
            timestamp: i64,
        }
        frame(&Shown { kind: EventKind::Result, results, timestamp }, out);
    }
}

/// Appends one event of any stream.
pub(super) fn frame(event: &impl Serialize, out: &mut Vec<u8>) {
    event
        .serialize(&mut Serializer::with_formatter(&mut *out, OneLine))
        .expect("invariant: an event has string keys, and a vector takes every write");
    out.extend_from_slice(b"\n\n");
}

/// Compact JSON without any character that ends a line.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let mut rest = fragment;
        while let Some((before, escape, after)) = split_at_line_break(rest) {
            CompactFormatter.write_string_fragment(writer, before)?;
            writer.write_all(escape)?;
            rest = after;
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }

    /// JSON that somebody else has written.
    fn write_raw_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        // Between values: in texts these are escapes already.
        for (number, line) in fragment.split(['\n', '\r']).enumerate() {
            if number > 0 {
                writer.write_all(b" ")?;
            }
            self.write_string_fragment(writer, line)?;
        }
        Ok(())
    }
}

fn split_at_line_break(text: &str) -> Option<(&str, &'static [u8], &str)> {
    // All three begin with one of these bytes, which plain text has none of.
    if !text.bytes().any(|byte| byte == 0xc2 || byte == 0xe2) {
        return None;
    }
    let (at, found) = text.char_indices().find_map(|(at, char)| match char {
        '\u{85}' => Some((at, (2, br"\u0085"))),
        '\u{2028}' => Some((at, (3, br"\u2028"))),
        '\u{2029}' => Some((at, (3, br"\u2029"))),
        _ => None,
    })?;
    let (before, rest) = text.split_at(at);
    Some((before, found.1, rest.split_at(found.0).1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(event: &Event) -> String {
        let mut out = Vec::new();
        event.frame(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn events_read_as_published_clients_expect() {
        let failure = Failure {
            ename: enames::COMMAND.into(),
            evalue: "7".into(),
            traceback: vec!["exit status 7".into()],
        };
        let stream: String = [
            Event::init("9f", 1),
            Event::ping(2),
            Event::stdout("a\tb \"c\"", 3),
            Event::stderr("\n", 4),
            Event::error(failure, 5),
            Event::complete(12, 6),
        ]
        .iter()
        .map(framed)
        .collect();
        insta::assert_snapshot!(stream, @r#"
        {"type":"init","text":"9f","timestamp":1}

        {"type":"ping","text":"pong","timestamp":2}

        {"type":"stdout","text":"a\tb \"c\"","timestamp":3}

        {"type":"stderr","text":"\n","timestamp":4}

        {"type":"error","error":{"ename":"CommandExecError","evalue":"7","traceback":["exit status 7"]},"timestamp":5}

        {"type":"execution_complete","execution_time":12,"timestamp":6}
        "#);
    }

    #[test]
    fn characters_that_end_a_line_are_escaped() {
        let text = "a\u{85}b\u{2028}c\u{2029}\u{2029}é€";
        insta::assert_snapshot!(
            framed(&Event::stdout(text, 0)),
            @r#"{"type":"stdout","text":"a\u0085b\u2028c\u2029\u2029é€","timestamp":0}"#
        );
    }

    #[test]
    fn an_unknown_kind_is_read() {
        let event: Event = serde_json::from_str(r#"{"type":"later","timestamp":1}"#).unwrap();
        assert_eq!(event.kind, EventKind::Unknown);
    }

    /// Everything that Python's `splitlines` cuts at.
    const LINE_BREAKS: [char; 10] =
        ['\n', '\r', '\x0b', '\x0c', '\x1c', '\x1d', '\x1e', '\u{85}', '\u{2028}', '\u{2029}'];

    proptest! {
        #[test]
        fn any_text_survives_in_one_line(text in r"(\PC|[\x00-\x20\x{85}\x{2028}\x{2029}])*") {
            let event = Event::stdout(text, 1);
            let frame = framed(&event);
            let json = frame.strip_suffix("\n\n").unwrap();
            prop_assert!(!json.contains(LINE_BREAKS));
            prop_assert_eq!(serde_json::from_str::<Event>(json).unwrap(), event);
        }
    }
}
