//! What cells show and how they fail, no larger than clients can read.

use std::collections::BTreeMap;

use osb_api::execd::Failure;
use serde_json::Value;

/// The most bytes of one event: clients stop reading a line at four mebibytes, and escapes may make
/// text longer.
pub(super) const LARGEST: usize = 3 << 20;

/// The longest name of a media type.
const NAME: usize = 256;

/// Lines of a traceback that are passed on.
const TRACE: usize = 1000;

/// Something in all the ways in which it can be shown, by media type.
pub(super) type Shapes = BTreeMap<String, Value>;

/// Media types with the length of each content and a way to get it. What does not fit is left out,
/// and the text says so.
pub(super) fn shapes<F: FnOnce() -> Value>(
    all: impl IntoIterator<Item = (String, usize, F)>,
) -> Shapes {
    let (mut shapes, mut size) = (Shapes::new(), 0_usize);
    let mut missing = Vec::new();
    for (kind, length, content) in all.into_iter().filter(|(kind, ..)| kind.len() <= NAME) {
        let name = if kind == "text/plain" { "text".to_owned() } else { kind };
        let content = if name == "text" {
            let content = content();
            let text = content.as_str().map(str::to_owned);
            Value::from(cut(text.unwrap_or_else(|| content.to_string())))
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
        let said = shapes.remove("text").and_then(|text| text.as_str().map(str::to_owned));
        missing.splice(..0, said);
        shapes.insert("text".to_owned(), Value::from(missing.join("\n")));
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
        let all = all.map(|(kind, text)| (kind.to_owned(), text.len(), || Value::from(text)));
        let shapes = shapes(all);
        assert_eq!(shapes.len(), 1);
        assert!(
            shapes["text"].as_str().unwrap().starts_with("<plot>\n[image/png of 3145729 bytes")
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "é".repeat(1 << 20);
        let failure = failure("E".to_owned(), long.clone(), vec![long; 3]);
        assert!(failure.evalue.ends_with("é [1048576 bytes more]"));
        assert!(failure.traceback.is_empty());
    }
}
