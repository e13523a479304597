use std::borrow::Cow;

/// Cuts output into the texts of events wherever it happens to be cut already, but never within a
/// character.
#[derive(Debug, Default)]
pub(super) struct Verbatim {
    /// The beginning of a character whose end has not come yet.
    partial: Vec<u8>,
}

impl Verbatim {
    pub(super) fn feed(&mut self, bytes: &[u8], mut emit: impl FnMut(Cow<'_, str>)) {
        let joined;
        let all = if self.partial.is_empty() {
            bytes
        } else {
            joined = [&std::mem::take(&mut self.partial), bytes].concat();
            &joined
        };
        let (whole, partial) = all.split_at(all.len() - unfinished(all));
        self.partial = partial.to_vec();
        if !whole.is_empty() {
            emit(String::from_utf8_lossy(whole));
        }
    }

    /// The end of the output: what is no whole character is shown as what it is.
    pub(super) fn finish(&mut self, mut emit: impl FnMut(Cow<'_, str>)) {
        let partial = std::mem::take(&mut self.partial);
        if !partial.is_empty() {
            emit(String::from_utf8_lossy(&partial));
        }
    }
}

/// How many bytes at the end are the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
    match bytes.utf8_chunks().last() {
        // What can still become a character is at the end, and is no longer than three bytes.
        Some(last) if may_go_on(last.invalid()) => last.invalid().len(),
        _ => 0,
    }
}

fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let (mut verbatim, mut texts) = (Verbatim::default(), Vec::new());
        for chunk in chunks {
            verbatim.feed(chunk, |text| texts.push(text.into_owned()));
        }
        verbatim.finish(|text| texts.push(text.into_owned()));
        texts
    }

    #[test]
    fn ends_of_lines_are_kept_and_characters_are_whole() {
        assert_eq!(texts([b"a\n\nb\r\n".as_slice()]), ["a\n\nb\r\n"]);
        assert_eq!(texts([b"x\xe2\x82".as_slice(), b"\xacy"]), ["x", "\u{20ac}y"]);
        assert_eq!(texts([b"x\xff".as_slice(), b"\xe2\x82"]), ["x\u{fffd}", "\u{fffd}"]);
        assert_eq!(texts([b"".as_slice()]), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn any_chunking_says_the_same(bytes: Vec<u8>, cut in any::<prop::sample::Index>()) {
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(texts([first, second]).concat(), String::from_utf8_lossy(&bytes));
        }
    }
}
