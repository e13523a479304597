use crate::{error::ApiError, request::Parameters};

/// Picks lines out of a file that is read in pieces.
///
/// Lines end with `\n` or `\r\n`. The picked lines are joined by `\n`, with none after the last.
#[derive(Debug)]
pub(super) struct LineRange {
    /// Lines to skip still.
    skip: u64,
    /// Lines to pick still, the one that is being read included; none is all of them.
    left: Option<u64>,
    /// Whether a line was picked before the one that is being read.
    joined: bool,
    /// Whether a byte of the current line was seen.
    begun: bool,
    /// A `\r` that is part of the line only if no `\n` follows.
    held: bool,
}

impl LineRange {
    /// Reads `offset` and `limit`; without either, no lines are asked for.
    pub(super) fn of(parameters: &Parameters) -> Result<Option<Self>, ApiError> {
        let number = |name| {
            let number = parameters.one(name).map(|text| match text.parse() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(ApiError::invalid(format!("`{name}` must be a number from 1"))),
            });
            number.transpose()
        };
        let (offset, limit): (Option<u64>, Option<u64>) = (number("offset")?, number("limit")?);
        let asked = offset.is_some() || limit.is_some();
        Ok(asked.then(|| Self::new(offset.unwrap_or(1), limit)))
    }

    /// From the line `offset`, counted from 1, at most `limit` lines.
    pub(super) fn new(offset: u64, limit: Option<u64>) -> Self {
        Self {
            skip: offset.saturating_sub(1),
            left: limit,
            joined: false,
            begun: false,
            held: false,
        }
    }

    /// Whether nothing that follows can matter.
    pub(super) fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    /// Appends to `out` what of `bytes` was asked for.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.is_done() {
                return;
            }
            let (text, ended) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            self.text(text, ended, out);
            if ended {
                self.end();
            }
        }
    }

    /// The end of the file: a `\r` without `\n` belongs to its line.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.held && self.skip == 0 && !self.is_done() {
            out.push(b'\r');
        }
        self.held = false;
    }

    fn text(&mut self, text: &[u8], ended: bool, out: &mut Vec<u8>) {
        if self.skip > 0 || (text.is_empty() && !ended) {
            return;
        }
        if !std::mem::replace(&mut self.begun, true) && self.joined {
            out.push(b'\n');
        }
        if std::mem::take(&mut self.held) && !text.is_empty() {
            out.push(b'\r');
        }
        let stripped = text.strip_suffix(b"\r");
        self.held = stripped.is_some() && !ended;
        out.extend_from_slice(stripped.unwrap_or(text));
    }

    fn end(&mut self) {
        if self.skip > 0 {
            self.skip -= 1;
        } else {
            self.left = self.left.map(|left| left - 1);
            self.joined = true;
        }
        self.begun = false;
        self.held = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn pick<'a>(
        chunks: impl IntoIterator<Item = &'a [u8]>,
        offset: u64,
        limit: Option<u64>,
    ) -> String {
        let (mut range, mut out) = (LineRange::new(offset, limit), Vec::new());
        for chunk in chunks {
            range.feed(chunk, &mut out);
        }
        range.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_joined_without_a_last_newline() {
        let text = b"one\ntwo\r\n\nfour\n".as_slice();
        for (offset, limit, expected) in [
            (1, None, "one\ntwo\n\nfour"),
            (2, Some(1), "two"),
            (2, Some(2), "two\n"),
            (3, None, "\nfour"),
            (4, Some(9), "four"),
            (5, None, ""),
            (99, Some(1), ""),
        ] {
            assert_eq!(pick([text], offset, limit), expected, "{offset} {limit:?}");
        }
        assert_eq!(pick([b"a\nb".as_slice()], 2, None), "b");
    }

    proptest! {
        #[test]
        fn any_chunking_picks_what_whole_lines_would(
            text in "([ab]|\r|\n|\r\n){0,30}", size in 1..5_usize, offset in 1..6_u64,
            limit in prop::option::of(1..6_u64),
        ) {
            let whole: Vec<_> = text
                .lines()
                .skip(usize::try_from(offset).unwrap() - 1)
                .take(limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap()))
                .collect();
            prop_assert_eq!(pick(text.as_bytes().chunks(size), offset, limit), whole.join("\n"));
        }

        #[test]
        fn nothing_panics(bytes in vec(any::<u8>(), 0..50), offset in any::<u64>()) {
            LineRange::new(offset, Some(1)).feed(&bytes, &mut Vec::new());
        }
    }
}
