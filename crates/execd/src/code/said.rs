//! What interpreters say of their cells, on their sockets: a letter, the number of fields, and each
//! field after its length. They are told what to do in the same way.

use std::ffi::OsStr;

use osb_api::execd::{Event, Failure};

use super::shapes::{Shape, Shapes, failure, is_json, shapes};
use crate::driven::{Birth, Tongue};

/// The most that one message may take. Of a longer one only that it came is known.
const LONGEST: usize = 32 << 20;

/// What an interpreter says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    /// The value of the cell with this number.
    Result {
        count: u64,
        shapes: Shapes,
    },
    /// Something that the cell shows.
    Display {
        shapes: Shapes,
    },
    /// What was shown is not wanted any more.
    Clear,
    /// It waits until what it has shown was passed on.
    Shown,
    Failed(Failure),
    /// The cell has come to its end.
    Finished,
    /// Something that nobody understands, or that is too long; there is nothing else any more.
    Nonsense,
}

/// A cell, as interpreters read it.
pub(super) fn cell(code: &str) -> Vec<u8> {
    told(b'R', &[code.as_bytes()])
}

/// What to import.
pub(super) fn imports(modules: &[String]) -> Vec<u8> {
    let modules: Vec<&[u8]> = modules.iter().map(String::as_bytes).collect();
    told(b'I', &modules)
}

/// What there is around an interpreter: its directory, and its variables.
pub(super) fn surroundings(Birth { cwd, env }: &Birth) -> Vec<u8> {
    let pairs = env.iter().flat_map(|(name, value)| [name.as_os_str(), value.as_os_str()]);
    let fields = std::iter::once(cwd.as_os_str()).chain(pairs);
    told(b'V', &fields.map(OsStr::as_encoded_bytes).collect::<Vec<_>>())
}

/// A message with these fields, of which there are fewer than a sandbox can have variables.
fn told(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    let fields = fields.get(..usize::from(u16::MAX)).unwrap_or(fields);
    let count = u16::try_from(fields.len()).unwrap_or(u16::MAX);
    let mut message = [&[kind][..], &count.to_be_bytes()].concat();
    for field in fields {
        let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(field);
    }
    message
}

/// That something which was shown has been passed on.
pub(super) fn passed_on() -> Vec<u8> {
    b"A\x00\x00".to_vec()
}

impl Said {
    /// Whether something stands here between what is printed before and after it.
    pub(super) fn is_shown(&self) -> bool {
        *self == Self::Shown
    }

    fn read(kind: u8, fields: Vec<Vec<u8>>) -> Option<Self> {
        let mut fields = fields.into_iter();
        let mut text = || fields.next().map(|field| String::from_utf8_lossy(&field).into_owned());
        Some(match kind {
            b'O' => Self::Result { count: text()?.parse().ok()?, shapes: pairs(fields) },
            b'D' | b'U' => {
                let _id = text()?;
                Self::Display { shapes: pairs(fields) }
            }
            b'C' => Self::Clear,
            b'W' => Self::Shown,
            b'E' => {
                let (ename, evalue) = (text()?, text()?);
                Self::Failed(failure(ename, evalue, std::iter::from_fn(text)))
            }
            b'F' => Self::Finished,
            _ => return None,
        })
    }

    /// Appends it as events; its end is none.
    pub(super) fn frame(self, now: i64, frames: &mut Vec<u8>) {
        match self {
            Self::Result { count, shapes } => {
                Event::count(count, now).frame(frames);
                Event::frame_result(&shapes, now, frames);
            }
            Self::Display { shapes } => Event::frame_result(&shapes, now, frames),
            Self::Clear => Event::status("clear_output", now).frame(frames),
            Self::Failed(failure) => {
                Event::status("error", now).frame(frames);
                Event::error(failure, now).frame(frames);
            }
            Self::Shown | Self::Finished | Self::Nonsense => {}
        }
    }
}

/// Pairs of a media type and a content.
fn pairs(mut fields: impl Iterator<Item = Vec<u8>>) -> Shapes {
    shapes(std::iter::from_fn(|| {
        let (kind, content) = (fields.next()?, fields.next()?);
        let kind = String::from_utf8_lossy(&kind).into_owned();
        let is_json = is_json(&kind);
        let length = content.len();
        Some((kind, length, move || shape(is_json, &content)))
    }))
}

fn shape(is_json: bool, content: &[u8]) -> Shape {
    let text = String::from_utf8_lossy(content);
    let json = if is_json { Shape::json(&text) } else { None };
    json.unwrap_or_else(|| Shape::Text(text.into_owned()))
}

/// Cuts what arrives into messages.
#[derive(Debug, Default)]
pub(super) struct Messages {
    heard: Vec<u8>,
    /// How much of the message at the beginning has been looked at, and how many fields follow.
    seen: usize,
    left: u16,
    /// Nothing that comes can be understood any more.
    is_lost: bool,
}

impl Tongue for Messages {
    type Said = Said;

    fn feed(&mut self, bytes: &[u8], mut emit: impl FnMut(Said)) {
        if self.is_lost {
            return;
        }
        self.heard.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(rest) = self.heard.get(at..) {
            match look(rest, &mut self.seen, &mut self.left) {
                Look::Whole => {
                    let (message, _) = rest.split_at_checked(self.seen).unwrap_or_default();
                    at += std::mem::take(&mut self.seen);
                    if let Some(said) = split(message).and_then(|it| Said::read(it.0, it.1)) {
                        emit(said);
                    }
                }
                Look::Partial if rest.len() <= LONGEST => break,
                Look::Partial | Look::Broken => {
                    self.is_lost = true;
                    at = self.heard.len();
                    emit(Said::Nonsense);
                    break;
                }
            }
        }
        self.heard.drain(..at);
        if self.heard.is_empty() {
            // A plot may have made it large.
            self.heard = Vec::new();
        }
    }
}

enum Look {
    Whole,
    Partial,
    Broken,
}

/// Looks for the end of the message at the beginning, from where it was not found the last time.
fn look(bytes: &[u8], seen: &mut usize, left: &mut u16) -> Look {
    if *seen == 0 {
        let Some(&[kind, high, low]) = bytes.first_chunk() else { return Look::Partial };
        if !kind.is_ascii_uppercase() {
            return Look::Broken;
        }
        (*seen, *left) = (3, u16::from_be_bytes([high, low]));
    }
    while *left > 0 {
        let rest = bytes.get(*seen..).unwrap_or_default();
        let Some((field, _)) = field(rest) else { return Look::Partial };
        *seen += 4 + field.len();
        *left -= 1;
    }
    Look::Whole
}

/// The kind and the fields of a whole message.
fn split(message: &[u8]) -> Option<(u8, Vec<Vec<u8>>)> {
    let (&[kind, _, _], mut rest) = message.split_first_chunk()?;
    let mut fields = Vec::new();
    while let Some((field, after)) = field(rest) {
        fields.push(field.to_vec());
        rest = after;
    }
    Some((kind, fields))
}

/// The first field, if all of it is there.
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, after) = bytes.split_first_chunk()?;
    after.split_at_checked(u32::from_be_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn heard<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Said> {
        let (mut messages, mut all) = (Messages::default(), Vec::new());
        for chunk in chunks {
            messages.feed(chunk, |said| all.push(said));
        }
        all
    }

    #[test]
    fn what_an_interpreter_says_is_understood() {
        let result = told(b'O', &[b"7", b"text/plain", b"2", b"application/json", b"{\"a\":[1]}"]);
        let error = told(b'E', &[b"NameError", b"x", b"a", b"b"]);
        let said = heard([result.as_slice(), &error, &told(b'C', &[b""]), &told(b'F', &[b"7"])]);
        let json = Shape::json("{\"a\":[1]}");
        let shapes = [("text", Shape::Text("2".to_owned())), ("application/json", json.unwrap())];
        let shapes = shapes.map(|(kind, shape)| (kind.to_owned(), shape)).into();
        let failure = Failure {
            ename: "NameError".into(),
            evalue: "x".into(),
            traceback: vec!["a".into(), "b".into()],
        };
        let expected =
            [Said::Result { count: 7, shapes }, Said::Failed(failure), Said::Clear, Said::Finished];
        assert_eq!(said, expected);
    }

    #[test]
    fn whoever_cannot_be_understood_is_not_listened_to() {
        let mut messages = Messages::default();
        let mut said = Vec::new();
        messages.feed(b"hello", |it| said.push(it));
        assert_eq!(said, [Said::Nonsense]);
        messages.feed(&told(b'F', &[]), |said| panic!("{said:?}"));
        assert!(messages.heard.is_empty());
        let mut endless = Messages::default();
        endless.feed(b"O\x00\x01\xff\xff\xff\xff", |said| panic!("{said:?}"));
        for _ in 0..40 {
            endless.feed(&vec![0; 1 << 20], |said| assert_eq!(said, Said::Nonsense));
            assert!(endless.heard.len() <= LONGEST + (1 << 20));
        }
        assert!(endless.heard.is_empty());
    }

    #[test]
    fn what_was_looked_at_is_not_looked_at_again() {
        let fields = vec![&b"x"[..]; usize::from(u16::MAX)];
        let all = [told(b'C', &fields), told(b'F', &[])].concat();
        assert_eq!(heard(all.chunks(1)), [Said::Clear, Said::Finished]);
        let mut messages = Messages::default();
        messages.feed(all.get(..100).unwrap(), |said| panic!("{said:?}"));
        assert_eq!(messages.seen, 98);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same(noise: Vec<u8>, cut in any::<prop::sample::Index>()) {
            let all = [told(b'O', &[b"1", b"text/plain", &noise]), told(b'F', &[]), noise].concat();
            let (first, second) = all.split_at(cut.index(all.len()));
            prop_assert_eq!(heard([first, second]), heard([all.as_slice()]));
        }
    }
}
