//! Forms in the format `multipart/form-data`, read as they arrive.

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;

/// The most that the lines before the content of a part may take.
const HEAD: usize = 16 << 10;

/// The longest boundary; the standard says 70.
const BOUNDARY: usize = 256;

/// The most white space behind a boundary.
const PADDING: usize = 256;

/// Reads a form piece by piece. It holds nothing of the content: what arrives is passed on as it
/// is, but for the few bytes at its end that may be the beginning of a boundary.
#[derive(Debug)]
pub(super) struct Form {
    /// The line break, the dashes and the boundary that end every part.
    delimiter: Finder<'static>,
    /// What has arrived and was not taken yet.
    rest: Bytes,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first boundary.
    Before,
    /// Right behind a boundary.
    Behind,
    Head,
    Content,
    /// Behind the last boundary, where nothing matters.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// A part begins, and has this name.
    Begin(Option<String>),
    Content(Bytes),
    /// The part that began last is complete.
    Complete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormError {
    #[error("the form breaks off")]
    BrokenOff,
    #[error("something other than a line break follows a boundary")]
    Boundary,
    #[error("the lines before the content of a part are longer than {HEAD} bytes")]
    LongHead,
}

impl Form {
    /// For a body of this content type, if it is a form.
    pub(super) fn new(content_type: &str) -> Option<Self> {
        let (kind, parameters) = content_type.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
            return None;
        }
        let boundary = parameter(parameters, "boundary")?;
        if boundary.is_empty() || boundary.len() > BOUNDARY {
            return None;
        }
        let delimiter = Finder::new(&format!("\r\n--{boundary}")).into_owned();
        // The first boundary needs no line break before it.
        Some(Self { delimiter, rest: Bytes::from_static(b"\r\n"), state: State::Before })
    }

    /// Takes what has arrived. All pieces of what arrived before must have been taken.
    pub(super) fn feed(&mut self, arrived: Bytes) {
        if self.rest.is_empty() {
            self.rest = arrived;
        } else {
            let mut both = BytesMut::with_capacity(self.rest.len() + arrived.len());
            both.extend_from_slice(&self.rest);
            both.extend_from_slice(&arrived);
            self.rest = both.freeze();
        }
    }

    /// The next piece, or none if more must arrive before there is one.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, FormError> {
        loop {
            match self.state {
                State::Before => {
                    if self.take_content().is_none() && self.state == State::Before {
                        return Ok(None);
                    }
                }
                State::Content => {
                    if let Some(content) = self.take_content() {
                        return Ok(Some(Piece::Content(content)));
                    }
                    return Ok((self.state != State::Content).then_some(Piece::Complete));
                }
                State::Behind => match self.rest.first_chunk() {
                    Some(b"--") => self.state = State::End,
                    Some(_) => match self.padding()? {
                        Some(length) => {
                            self.skip(length);
                            self.state = State::Head;
                        }
                        None => return Ok(None),
                    },
                    None => return Ok(None),
                },
                State::Head => return self.head(),
                State::End => {
                    self.rest = Bytes::new();
                    return Ok(None);
                }
            }
        }
    }

    /// The body has ended; so must have the form.
    pub(super) fn finish(&self) -> Result<(), FormError> {
        if self.state == State::End { Ok(()) } else { Err(FormError::BrokenOff) }
    }

    /// Takes what surely is before the next boundary, and then the boundary.
    fn take_content(&mut self) -> Option<Bytes> {
        let content = match self.delimiter.find(&self.rest) {
            Some(0) => {
                self.skip(self.delimiter.needle().len());
                self.state = State::Behind;
                return None;
            }
            Some(at) => self.rest.split_to(at),
            None => {
                let open = self.beginning_of_delimiter();
                self.rest.split_to(self.rest.len() - open)
            }
        };
        (!content.is_empty()).then_some(content)
    }

    /// How many bytes at the end may be the beginning of a boundary.
    fn beginning_of_delimiter(&self) -> usize {
        let needle = self.delimiter.needle();
        let most = self.rest.len().min(needle.len() - 1);
        let tail = self.rest.get(self.rest.len() - most..).unwrap_or_default();
        // The line break at its beginning is nowhere else in it.
        let begins = tail.iter().rposition(|&byte| byte == b'\r');
        let open = begins.and_then(|at| tail.get(at..)).unwrap_or_default();
        if needle.starts_with(open) { open.len() } else { 0 }
    }

    /// The length of the rest of a boundary's line, once it has arrived.
    fn padding(&self) -> Result<Option<usize>, FormError> {
        let white = self.rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        match self.rest.get(white..) {
            _ if white > PADDING => Err(FormError::Boundary),
            Some([b'\r', b'\n', ..]) => Ok(Some(white + 2)),
            Some([] | [b'\r']) => Ok(None),
            _ => Err(FormError::Boundary),
        }
    }

    fn head(&mut self) -> Result<Option<Piece>, FormError> {
        // A part without any lines before its content has only the line break.
        let (length, end) = match memchr::memmem::find(&self.rest, b"\r\n\r\n") {
            _ if self.rest.starts_with(b"\r\n") => (0, 2),
            Some(length) if length <= HEAD => (length, length + 4),
            None if self.rest.len() < HEAD + 4 => return Ok(None),
            _ => return Err(FormError::LongHead),
        };
        let name = name(self.rest.get(..length).unwrap_or_default());
        self.skip(end);
        self.state = State::Content;
        Ok(Some(Piece::Begin(name)))
    }

    fn skip(&mut self, length: usize) {
        drop(self.rest.split_to(length));
    }
}

/// The name of a part, from the lines before its content.
fn name(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let disposition = head.split("\r\n").find_map(|line| {
        let (header, value) = line.split_once(':')?;
        header.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let (_, parameters) = disposition.split_once(';')?;
    parameter(parameters, "name")
}

/// The value of a parameter in a list such as `name="a"; filename=b`.
fn parameter(list: &str, wanted: &str) -> Option<String> {
    let mut rest = list;
    loop {
        let (name, after) = rest.split_once('=')?;
        // A parameter without a value is passed over.
        let name = name.rsplit(';').next().unwrap_or(name).trim();
        let (value, after) = value(after.trim_start());
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = after;
    }
}

/// A value, in quotes or not, and what follows it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.trim().to_owned(), rest);
    };
    let (mut value, mut characters) = (String::new(), quoted.chars());
    while let Some(c) = characters.next() {
        match c {
            '"' => break,
            '\\' => value.extend(characters.next()),
            c => value.push(c),
        }
    }
    (value, characters.as_str())
}

#[cfg(test)]
mod tests;
