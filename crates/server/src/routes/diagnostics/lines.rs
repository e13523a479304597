//! Text of which only the end is shown.

/// The end of a text, in whole lines as far as it has any.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) text: String,
    /// Whether there was more.
    pub(super) is_cut: bool,
}

/// The last bytes of something that may be endless.
#[derive(Debug)]
pub(super) struct Tail {
    most: usize,
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    pub(super) fn new(most: usize) -> Self {
        Self { most, bytes: Vec::new(), is_cut: false }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // Not each time, or every byte would be moved again and again.
        if self.bytes.len() > self.most.saturating_mul(2) {
            self.shrink();
        }
    }

    /// The last lines of it, at most so many.
    pub(super) fn lines(mut self, most: usize) -> Cut {
        self.shrink();
        if self.is_cut
            && let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n')
            && end + 1 < self.bytes.len()
        {
            // The first line is not whole.
            self.bytes.drain(..=end);
        }
        let body = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
        let mut breaks = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
        let before = most.checked_sub(1).and_then(|skipped| breaks.nth(skipped));
        let start = before.map(|(at, _)| at + 1);
        let shown = self.bytes.get(start.unwrap_or(0)..).unwrap_or_default();
        Cut {
            text: String::from_utf8_lossy(shown).into_owned(),
            is_cut: self.is_cut || start.is_some(),
        }
    }

    fn shrink(&mut self) {
        let spare = self.bytes.len().saturating_sub(self.most);
        if spare > 0 {
            self.is_cut = true;
            self.bytes.drain(..spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, most_bytes: usize, most_lines: usize, shown: &str, is_cut: bool) {
        let mut tail = Tail::new(most_bytes);
        for piece in text.as_bytes().chunks(3) {
            tail.push(piece);
        }
        let expected = Cut { text: shown.to_owned(), is_cut };
        assert_eq!(tail.lines(most_lines), expected, "{text:?}");
    }

    #[test]
    fn the_last_lines_are_shown() {
        check("", 100, 2, "", false);
        check("a\nb\n", 100, 2, "a\nb\n", false);
        check("a\nb\nc\n", 100, 2, "b\nc\n", true);
        check("a\nb\nc", 100, 2, "b\nc", true);
        check("\n\n\n", 100, 2, "\n\n", true);
    }

    #[test]
    fn what_is_too_long_begins_with_a_whole_line() {
        check("aaaa\nbbbb\ncccc\n", 12, 10, "bbbb\ncccc\n", true);
        check("aaaaaaaaaaaaaaaa", 4, 10, "aaaa", true);
        check("aaaaaaaaaaaaaaaa\n", 4, 10, "aaa\n", true);
    }

    #[test]
    fn what_is_no_text_is_shown_as_such() {
        let mut tail = Tail::new(10);
        tail.push(b"\xff\n");
        assert_eq!(tail.lines(1).text, "\u{fffd}\n");
    }
}
