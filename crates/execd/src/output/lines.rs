use std::borrow::Cow;

/// The most bytes of a line in one event. Escaped as JSON each can take six, which stays below
/// a mebibyte; clients stop reading at four.
const LONGEST: usize = 160 << 10;

/// Cuts output into the texts of events: one for each line, without its terminator.
///
/// `\n`, `\r` and `\r\n` end a line. An empty line is the text `"\n"`, because an empty text would
/// be no event. A line that is too long is cut between characters. However the bytes arrive, the
/// texts are the same.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The line so far, never more than [`LONGEST`].
    partial: Vec<u8>,
    /// The last byte was `\r`: a `\n` that follows belongs to it.
    after_return: bool,
}

impl Lines {
    pub(super) fn feed(&mut self, bytes: &[u8], mut emit: impl FnMut(Cow<'_, str>)) {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let Some(end) = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r') else {
                self.extend(rest, &mut emit);
                return;
            };
            let (line, terminated) = rest.split_at(end);
            let (terminator, after) = terminated.split_at(1);
            self.after_return = terminator == b"\r";
            rest = after;
            if self.partial.is_empty() && line.len() <= LONGEST {
                emit(text(line));
            } else {
                self.extend(line, &mut emit);
                emit(text(&self.partial));
                self.partial.clear();
            }
        }
    }

    /// The end of the output: what has no terminator is a line as well.
    pub(super) fn finish(&mut self, mut emit: impl FnMut(Cow<'_, str>)) {
        if !self.partial.is_empty() {
            emit(text(&self.partial));
            self.partial = Vec::new();
        }
    }

    /// Adds to the line, and emits its beginning once it is known to be longer than allowed.
    fn extend(&mut self, bytes: &[u8], emit: &mut impl FnMut(Cow<'_, str>)) {
        let mut rest = bytes;
        while self.partial.len() + rest.len() > LONGEST {
            let (now, later) = rest.split_at(LONGEST + 1 - self.partial.len());
            self.partial.extend_from_slice(now);
            let tail = self.partial.split_off(boundary(&self.partial));
            emit(text(&self.partial));
            self.partial = tail;
            rest = later;
        }
        self.partial.extend_from_slice(rest);
    }
}

/// Where to cut [`LONGEST`] bytes and one so that no character is torn.
fn boundary(bytes: &[u8]) -> usize {
    let continues = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (LONGEST - 3..=LONGEST).rev().find(|at| !continues(at)).unwrap_or(LONGEST)
}

fn text(line: &[u8]) -> Cow<'_, str> {
    if line.is_empty() { Cow::Borrowed("\n") } else { String::from_utf8_lossy(line) }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn texts<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut texts = Vec::new();
        let mut lines = Lines::default();
        for chunk in chunks {
            lines.feed(chunk, |text| texts.push(text.into_owned()));
        }
        lines.finish(|text| texts.push(text.into_owned()));
        texts
    }

    fn check(output: &[u8], expected: &[&str]) {
        assert_eq!(texts([output]), expected);
    }

    #[test]
    fn a_line_is_an_event_without_its_terminator() {
        check(b"Hello\n", &["Hello"]);
        check(b"a\nb\rc\r\nd", &["a", "b", "c", "d"]);
        check(b"", &[]);
        check(b"  a  \n", &["  a  "]);
    }

    #[test]
    fn an_empty_line_is_a_newline() {
        check(b"a\n\nb\n\n\nc\n", &["a", "\n", "b", "\n", "\n", "c"]);
        check(b"\n", &["\n"]);
        check(b"\r\n\r\n", &["\n", "\n"]);
        check(b"\r\r\n\n", &["\n", "\n", "\n"]);
    }

    #[test]
    fn a_pair_counts_once_across_reads() {
        assert_eq!(texts([b"a\r".as_slice(), b"\nb\r", b"", b"\n", b"\n"]), ["a", "b", "\n"]);
    }

    #[test]
    fn what_is_not_unicode_is_replaced() {
        check(b"a\xffb\xe2\x82\n", &["a\u{fffd}b\u{fffd}"]);
        assert_eq!(texts([b"\xe2".as_slice(), b"\x82", b"\xac\n"]), ["€"]);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let line = "€".repeat(LONGEST);
        let texts = texts([line.as_bytes(), b"\n"]);
        assert!(texts.iter().all(|text| text.len() <= LONGEST && !text.contains('\u{fffd}')));
        assert_eq!(texts.concat(), line);
    }

    #[test]
    fn a_line_of_the_greatest_length_is_one_event() {
        let line = "x".repeat(LONGEST);
        assert_eq!(texts([line.as_bytes(), b"\n"]), [line.as_str()]);
        assert_eq!(texts([line.as_bytes(), b"y\n"]), [line.as_str(), "y"]);
    }

    #[test]
    fn an_event_stays_below_a_mebibyte() {
        let mut frame = Vec::new();
        osb_api::execd::Event::stdout("\u{1}".repeat(LONGEST), i64::MAX).frame(&mut frame);
        assert!(frame.len() < 1 << 20, "{}", frame.len());
    }

    /// Bytes in which everything that matters is frequent, with a few very long runs.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            8 => prop_oneof![
                Just(b"\n".to_vec()), Just(b"\r".to_vec()), Just(b"\r\n".to_vec()),
                Just(b"ab".to_vec()), Just("é€😀".as_bytes().to_vec()), vec(any::<u8>(), 0..6),
            ],
            1 => (0..4_usize).prop_map(|extra| "é".repeat(LONGEST / 2 + extra).into_bytes()),
            1 => (0..4_usize).prop_map(|extra| vec![0x80; LONGEST - 2 + extra]),
        ];
        vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_chunking_gives_the_same_events(
            output in output(),
            cuts in vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(output.len() + 1)).collect();
            cuts.extend([0, output.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|pair| &output[pair[0]..pair[1]]);
            prop_assert_eq!(texts(chunks), texts([output.as_slice()]));
        }

        #[test]
        fn single_bytes_give_the_same_events(output in vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(texts(output.chunks(1)), texts([output.as_slice()]));
        }
    }
}
