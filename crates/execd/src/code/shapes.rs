//! What cells show and how they fail, no larger than clients can read.

use std::{collections::BTreeMap, fmt};

use osb_api::execd::Failure;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// The most bytes of one event: clients stop reading a line at four mebibytes, and escapes may make
/// text longer.
pub(super) const LARGEST: usize = 3 << 20;

/// The longest name of a media type.
const NAME: usize = 256;

/// Lines of a traceback that are passed on.
pub(super) const TRACE: usize = 1000;

/// Something in all the ways in which it can be shown, by media type.
pub(super) type Shapes = BTreeMap<String, Shape>;

/// One of these ways.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Shape {
    Text(String),
    /// As it was written: a tree of it takes a hundred times the memory.
    Json(Box<RawValue>),
}

impl Shape {
    /// Nothing, if clients could not read it.
    pub(super) fn json(text: &str) -> Option<Self> {
        serde_json::from_str::<Sound>(text).ok()?;
        Some(Self::Json(serde_json::from_str::<&RawValue>(text).ok()?.to_owned()))
    }

    /// As it is, or as it is written.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Json(json) => json.get(),
        }
    }
}

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        let is_text = |shape: &Self| matches!(shape, Self::Text(_));
        is_text(self) == is_text(other) && self.as_str() == other.as_str()
    }
}

/// JSON in which all is as it should be, down to the last text and number, and no deeper than
/// clients go.
struct Sound;

impl<'de> Deserialize<'de> for Sound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Sound {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("anything")
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self, A::Error> {
        while all.next_element::<Self>()?.is_some() {}
        Ok(Self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self, A::Error> {
        while all.next_entry::<Self, Self>()?.is_some() {}
        Ok(Self)
    }
}

/// Media types with the length of each content and a way to get it. What does not fit is left out,
/// and the text says so.
pub(super) fn shapes<F: FnOnce() -> Shape>(
    all: impl IntoIterator<Item = (String, usize, F)>,
) -> Shapes {
    let (mut shapes, mut size) = (Shapes::new(), 0_usize);
    let mut missing = Vec::new();
    for (kind, length, content) in all.into_iter().filter(|(kind, ..)| kind.len() <= NAME) {
        let name = if kind == "text/plain" { "text".to_owned() } else { kind };
        let content = if name == "text" {
            Shape::Text(cut(content().as_str().to_owned()))
        } else if size.saturating_add(length + name.len()) > LARGEST {
            missing.push(format!("[{name} of {length} bytes is too large to be delivered]"));
            continue;
        } else {
            size += length + name.len();
            content()
        };
        shapes.insert(name, content);
    }
    if !missing.is_empty() {
        let said = shapes.remove("text").map(|text| text.as_str().to_owned());
        missing.splice(..0, said);
        shapes.insert("text".to_owned(), Shape::Text(missing.join("\n")));
    }
    shapes
}

/// Whether content of a media type is more than text.
pub(super) fn is_json(kind: &str) -> bool {
    kind == "application/json" || kind.ends_with("+json")
}

/// An error of a cell.
pub(super) fn failure(
    ename: String,
    evalue: String,
    traceback: impl IntoIterator<Item = String>,
) -> Failure {
    let traceback = traceback.into_iter().take(TRACE).collect::<Vec<_>>();
    let whole: usize = traceback.iter().map(String::len).sum();
    let traceback = if whole > LARGEST { Vec::new() } else { traceback };
    Failure { ename: cut(ename), evalue: cut(evalue), traceback }
}

/// A text that is not too long to be read by clients, with a mark where it was cut.
fn cut(text: String) -> String {
    const MOST: usize = 1 << 20;
    if text.len() <= MOST {
        return text;
    }
    let end = text.floor_char_boundary(MOST);
    format!("{} [{} bytes more]", text.get(..end).unwrap_or_default(), text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_left_out_and_said() {
        let all = [("image/png", "x".repeat(LARGEST + 1)), ("text/plain", "<plot>".to_owned())];
        let all = all.map(|(kind, text)| (kind.to_owned(), text.len(), || Shape::Text(text)));
        let shapes = shapes(all);
        assert_eq!(shapes.len(), 1);
        assert!(shapes["text"].as_str().starts_with("<plot>\n[image/png of 3145729 bytes"));
    }

    #[test]
    fn json_is_passed_on_as_it_is_if_clients_can_read_it() {
        let text = "{\"a\": [1,\n 2.5, null, true, \"\u{2028}\\n\"]}";
        let shapes = Shapes::from([("application/json".to_owned(), Shape::json(text).unwrap())]);
        let mut frame = Vec::new();
        osb_api::execd::Event::frame_result(&shapes, 7, &mut frame);
        let expected = "{\"type\":\"result\",\"results\":{\"application/json\":\
            {\"a\": [1,  2.5, null, true, \"\\u2028\\n\"]}},\"timestamp\":7}\n\n";
        assert_eq!(String::from_utf8(frame).unwrap(), expected);
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        for unreadable in ["{", "1e999", r#""\ud800""#, &deep, "{} {}"] {
            assert_eq!(Shape::json(unreadable), None);
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "é".repeat(1 << 20);
        let failure = failure("E".to_owned(), long.clone(), vec![long; 3]);
        assert!(failure.evalue.ends_with("é [1048576 bytes more]"));
        assert!(failure.traceback.is_empty());
    }
}
