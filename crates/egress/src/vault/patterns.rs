//! Finds and replaces texts while they stream by, wherever the pieces are cut.
//!
//! One pass from left to right: at a position the longest text wins, and what was put in is not
//! looked at again. What is held back of a piece is the beginning of something, or, where the texts
//! are secret, does not depend on them.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;

use super::encode::Wiped;

/// What is held back blindly is a multiple of this.
const HELD: usize = 256;

/// Texts to find, each with what to put in its place.
pub(super) struct Patterns {
    /// The longest first, none twice, none empty.
    all: Vec<Pattern>,
    begins: Begins,
}

struct Pattern {
    find: Wiped,
    put: Wiped,
}

/// The bytes that a text can begin with.
enum Begins {
    Few(Vec<u8>),
    Many(Box<[bool; 256]>),
}

/// More was put in than anybody needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secrets that were put in are too long together")]
pub struct Overgrown;

/// A body on its way through a set of texts.
pub struct Rewrite {
    patterns: Arc<Patterns>,
    hold: Hold,
    held: Vec<u8>,
    /// How much longer the whole may become.
    room: usize,
    length: Option<u64>,
}

/// What is held back of a piece until more comes or the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// What may be the beginning of a text. Whoever sees the pieces learns how the texts begin.
    Beginnings,
    /// As much as the longest text may need, whatever it says, but nothing before the end of a line:
    /// events are passed on when they come.
    Blindly,
}

/// What is at a position.
enum Sight<'a> {
    Nothing,
    Match(&'a Pattern),
    /// The text ends before that can be said.
    Perhaps,
}

/// How far a text is gone through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// To where something begins that may go on.
    Beginning,
    /// To a position before which everything can be decided.
    Position(usize),
}

impl Patterns {
    /// Of equal texts the first counts.
    pub(super) fn new(pairs: impl IntoIterator<Item = (Wiped, Wiped)>) -> Self {
        let mut all: Vec<Pattern> = Vec::new();
        for (find, put) in pairs {
            if !find.is_empty() && all.iter().all(|known| known.find != find) {
                all.push(Pattern { find, put });
            }
        }
        all.sort_by_key(|pattern| std::cmp::Reverse(pattern.find.len()));
        let begins = Begins::new(all.iter().filter_map(|pattern| pattern.find.first().copied()));
        Self { all, begins }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Replaces in a whole text, which becomes at most `room` longer.
    pub(super) fn replace<'t>(
        &self,
        text: &'t [u8],
        room: usize,
    ) -> Result<Cow<'t, [u8]>, Overgrown> {
        let (mut out, mut room) = (None, room);
        let end = self.run(text, Until::Position(text.len()), &mut room, &mut out)?;
        let rest = text.get(end.copied..).unwrap_or_default();
        Ok(match out {
            None => Cow::Borrowed(text),
            Some(mut out) => {
                out.extend_from_slice(rest);
                Cow::Owned(out)
            }
        })
    }

    /// Goes through the text as far as it can be decided. What lies between the ends of the answer
    /// is yet to be copied; what follows is undecided.
    fn run(
        &self,
        text: &[u8],
        until: Until,
        room: &mut usize,
        out: &mut Option<Vec<u8>>,
    ) -> Result<End, Overgrown> {
        let (mut copied, mut at) = (0, 0);
        let limit = match until {
            Until::Beginning => text.len(),
            Until::Position(limit) => limit,
        };
        while let Some(found) = self.begins.next(text, at).filter(|found| *found < limit) {
            let rest = text.get(found..).unwrap_or_default();
            match self.look(rest, until) {
                Sight::Nothing => at = found + 1,
                Sight::Perhaps => return Ok(End { copied, decided: found }),
                Sight::Match(pattern) => {
                    let grown = pattern.put.len().saturating_sub(pattern.find.len());
                    *room = room.checked_sub(grown).ok_or(Overgrown)?;
                    let out = out.get_or_insert_with(|| Vec::with_capacity(text.len()));
                    out.extend_from_slice(text.get(copied..found).unwrap_or_default());
                    out.extend_from_slice(&pattern.put);
                    at = found + pattern.find.len();
                    copied = at;
                }
            }
        }
        Ok(End { copied, decided: limit.max(copied) })
    }

    /// Where the last part of a text begins that must be held back so that nobody learns what is
    /// looked for.
    fn blind(&self, text: &[u8]) -> usize {
        // Rounded, so that even the length is not told exactly.
        let longest = self.all.first().map_or(0, |pattern| pattern.find.len());
        let far = text.len().saturating_sub(longest.next_multiple_of(HELD));
        let spans_lines = self.all.iter().any(|pattern| pattern.find.contains(&b'\n'));
        let line = if spans_lines { None } else { memchr::memrchr(b'\n', text) };
        line.map_or(far, |line| far.max(line + 1))
    }

    fn look(&self, rest: &[u8], until: Until) -> Sight<'_> {
        for pattern in &self.all {
            if rest.starts_with(&pattern.find) {
                return Sight::Match(pattern);
            }
            if until == Until::Beginning && pattern.find.starts_with(rest) {
                return Sight::Perhaps;
            }
        }
        Sight::Nothing
    }
}

struct End {
    copied: usize,
    decided: usize,
}

impl Begins {
    fn new(bytes: impl Iterator<Item = u8>) -> Self {
        let mut few: Vec<u8> = bytes.collect();
        few.sort_unstable();
        few.dedup();
        if few.len() <= 3 {
            return Self::Few(few);
        }
        let mut many = Box::new([false; 256]);
        for (byte, begins) in (0..=u8::MAX).zip(many.iter_mut()) {
            *begins = few.contains(&byte);
        }
        Self::Many(many)
    }

    /// The first position from `at` on where something can begin.
    fn next(&self, text: &[u8], at: usize) -> Option<usize> {
        let rest = text.get(at..)?;
        let found = match self {
            Self::Few(few) => match *few.as_slice() {
                [a] => memchr::memchr(a, rest),
                [a, b] => memchr::memchr2(a, b, rest),
                [a, b, c] => memchr::memchr3(a, b, c, rest),
                _ => None,
            },
            Self::Many(many) => rest
                .iter()
                .position(|byte| many.get(usize::from(*byte)).copied().unwrap_or_default()),
        };
        found.map(|found| at + found)
    }
}

impl Rewrite {
    /// A body that was announced to be at most this long should be read whole, rewritten by
    /// [`Rewrite::whole`] and sent with its new length: some servers take no body without one.
    pub const WHOLE: u64 = 1 << 20;

    pub(super) fn new(
        patterns: Arc<Patterns>,
        hold: Hold,
        room: usize,
        length: Option<u64>,
    ) -> Self {
        Self { patterns, hold, held: Vec::new(), room, length }
    }

    /// How long the body was announced to be, before anything is replaced.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Takes the next piece and gives what can be passed on.
    pub fn push(&mut self, piece: Bytes) -> Result<Bytes, Overgrown> {
        let text = self.after_held(piece);
        let until = match self.hold {
            Hold::Beginnings => Until::Beginning,
            Hold::Blindly => Until::Position(self.patterns.blind(&text)),
        };
        self.take(&text, until)
    }

    /// Gives what was held back: the body is over.
    pub fn finish(self) -> Result<Bytes, Overgrown> {
        self.whole(Bytes::new())
    }

    /// Takes a whole body.
    pub fn whole(mut self, body: Bytes) -> Result<Bytes, Overgrown> {
        let text = self.after_held(body);
        self.take(&text, Until::Position(text.len()))
    }

    fn after_held(&mut self, piece: Bytes) -> Bytes {
        if self.held.is_empty() {
            return piece;
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(&piece);
        Bytes::from(text)
    }

    fn take(&mut self, text: &Bytes, until: Until) -> Result<Bytes, Overgrown> {
        let mut out = None;
        let end = self.patterns.run(text, until, &mut self.room, &mut out)?;
        self.held.extend_from_slice(text.get(end.decided..).unwrap_or_default());
        // Where nothing was replaced the piece goes on as it came, without a copy.
        let Some(mut out) = out else { return Ok(text.slice(..end.decided)) };
        out.extend_from_slice(text.get(end.copied..end.decided).unwrap_or_default());
        Ok(Bytes::from(out))
    }
}

/// Replaces in a text that comes in pieces, for the fuzzer.
#[cfg(feature = "fuzzing")]
pub fn rewrite<'a>(
    pairs: &[(&[u8], &[u8])],
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, Overgrown> {
    let wiped = |text: &[u8]| Wiped::new(text.to_vec());
    let pairs = pairs.iter().map(|(find, put)| (wiped(find), wiped(put)));
    let patterns = Arc::new(Patterns::new(pairs));
    let mut rewrite = Rewrite::new(patterns, Hold::Beginnings, usize::MAX, None);
    let mut out = Vec::new();
    for piece in pieces {
        out.extend_from_slice(&rewrite.push(Bytes::copy_from_slice(piece))?);
    }
    out.extend_from_slice(&rewrite.finish()?);
    Ok(out)
}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patterns").field("count", &self.all.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rewrite").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use secrecy::zeroize::Zeroizing;

    use super::*;

    fn patterns(pairs: &[(&str, &str)]) -> Arc<Patterns> {
        let wiped = |text: &str| Zeroizing::new(text.as_bytes().to_vec());
        Arc::new(Patterns::new(pairs.iter().map(|(find, put)| (wiped(find), wiped(put)))))
    }

    /// The meaning, without a thought for speed or pieces.
    fn naive(pairs: &[(&str, &str)], text: &[u8]) -> Vec<u8> {
        let (mut out, mut at) = (Vec::new(), 0);
        while at < text.len() {
            let mut best: Option<&(&str, &str)> = None;
            for pair in pairs.iter().filter(|(find, _)| !find.is_empty()) {
                if text[at..].starts_with(pair.0.as_bytes())
                    && best.is_none_or(|(find, _)| pair.0.len() > find.len())
                {
                    best = Some(pair);
                }
            }
            if let Some((find, put)) = best {
                out.extend_from_slice(put.as_bytes());
                at += find.len();
            } else {
                out.push(text[at]);
                at += 1;
            }
        }
        out
    }

    fn open(patterns: Arc<Patterns>) -> Rewrite {
        Rewrite::new(patterns, Hold::Beginnings, usize::MAX, None)
    }

    fn blind(patterns: Arc<Patterns>) -> Rewrite {
        Rewrite::new(patterns, Hold::Blindly, usize::MAX, None)
    }

    fn streamed(mut rewrite: Rewrite, pieces: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in pieces {
            out.extend_from_slice(&rewrite.push(Bytes::copy_from_slice(piece)).unwrap());
        }
        out.extend_from_slice(&rewrite.finish().unwrap());
        out
    }

    #[test]
    fn the_longest_text_at_the_leftmost_place_wins_and_is_not_looked_at_again() {
        let patterns = patterns(&[("ab", "1"), ("abc", "ab"), ("bcd", "2"), ("x", "xx")]);
        for (text, expected) in
            [("abcd", "abd"), ("aabcabc", "aabab"), ("bcd", "2"), ("xax", "xxaxx"), ("", "")]
        {
            let whole = patterns.replace(text.as_bytes(), usize::MAX).unwrap();
            assert_eq!(std::str::from_utf8(&whole).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn only_what_may_be_a_beginning_is_held_back() {
        let mut rewrite = open(patterns(&[("__KEY__", "s")]));
        let mut push = |text: &'static str| rewrite.push(Bytes::from_static(text.as_bytes()));
        assert_eq!(push("data: hello\n\n").unwrap(), "data: hello\n\n");
        assert_eq!(push("a __K").unwrap(), "a ");
        assert_eq!(push("EY").unwrap(), "");
        assert_eq!(push("__ b _").unwrap(), "s b ");
        assert_eq!(push(".").unwrap(), "_.");
        assert_eq!(push("__KEY_").unwrap(), "");
        assert_eq!(rewrite.finish().unwrap(), "__KEY_");
    }

    #[test]
    fn a_piece_without_a_hit_is_not_copied() {
        let mut rewrite = open(patterns(&[("__KEY__", "s")]));
        let piece = Bytes::from(vec![b'a'; 1000]);
        let passed = rewrite.push(piece.clone()).unwrap();
        assert_eq!(passed.as_ptr(), piece.as_ptr());
    }

    #[test]
    fn growth_has_an_end() {
        let mut rewrite =
            Rewrite::new(patterns(&[("x", "0123456789")]), Hold::Beginnings, 20, None);
        assert!(rewrite.push(Bytes::from_static(b"x.x")).is_ok());
        assert_eq!(rewrite.push(Bytes::from_static(b"x")), Err(Overgrown));
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_answer_is_that_of_the_whole(
            pairs in vec(("[abc]{1,5}", "[abcd]{0,6}"), 0..6),
            pieces in vec("[abcd\n]{0,6}", 0..12),
        ) {
            let pairs: Vec<_> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            let whole = pieces.concat();
            let patterns = patterns(&pairs);
            let expected = naive(&pairs, whole.as_bytes());
            let pieces: Vec<_> = pieces.iter().map(String::as_bytes).collect();
            prop_assert_eq!(streamed(open(patterns.clone()), &pieces), expected.clone());
            prop_assert_eq!(streamed(blind(patterns.clone()), &pieces), expected.clone());
            let at_once = patterns.replace(whole.as_bytes(), usize::MAX).unwrap();
            prop_assert_eq!(at_once.into_owned(), expected);
        }

        #[test]
        fn what_is_held_back_is_shorter_than_the_longest_text(
            pairs in vec("[ab]{1,6}", 1..5),
            pieces in vec("[ab]{0,8}", 0..10),
        ) {
            let longest = pairs.iter().map(String::len).max().unwrap();
            let pairs: Vec<_> = pairs.iter().map(|find| (find.as_str(), "")).collect();
            let mut rewrite = open(patterns(&pairs));
            for piece in pieces {
                rewrite.push(Bytes::from(piece)).unwrap();
                prop_assert!(rewrite.held.len() < longest);
            }
        }

        #[test]
        fn the_pieces_tell_nothing_of_a_text_that_is_not_in_them(
            one in "[ab]{6}",
            other in "[ab]{6}",
            pieces in vec("[ab]{0,5}[\n.]?[ab]{0,400}", 0..8),
        ) {
            let whole = pieces.concat();
            // So that neither is in it, and every beginning of both is.
            let (one, other) = (format!("{one}!"), format!("{other}!"));
            let lengths = |secret: &str| {
                let mut rewrite = blind(patterns(&[(secret, "[REDACTED]")]));
                let pushed: Vec<_> = pieces.iter().map(|piece| {
                    rewrite.push(Bytes::copy_from_slice(piece.as_bytes())).unwrap()
                }).collect();
                let last = rewrite.finish().unwrap();
                assert_eq!([pushed.concat().as_slice(), &last].concat(), whole.as_bytes());
                pushed.iter().map(Bytes::len).collect::<Vec<_>>()
            };
            prop_assert_eq!(lengths(&one), lengths(&other));
        }

        #[test]
        fn texts_are_found_across_what_is_held_back_blindly(
            before in vec("[ab\n]{0,300}", 0..4),
            after in vec("[ab\n]{0,300}", 0..4),
            cut in 0..7_usize,
        ) {
            let (begin, end) = "s3cret!".split_at(cut);
            let all = [before.clone(), vec![begin.to_owned(), end.to_owned()], after.clone()].concat();
            let pieces: Vec<_> = all.iter().map(String::as_bytes).collect();
            let expected = format!("{}*{}", before.concat(), after.concat());
            let out = streamed(blind(patterns(&[("s3cret!", "*")])), &pieces);
            prop_assert_eq!(out, expected.into_bytes());
        }
    }

    #[test]
    fn whole_lines_are_passed_on_at_once_unless_a_text_spans_some() {
        let mut rewrite = blind(patterns(&[("s3cret", "*")]));
        let event = Bytes::from_static(b"data: s3cret\n\n");
        assert_eq!(rewrite.push(event.clone()).unwrap(), "data: *\n\n");
        assert_eq!(rewrite.push(Bytes::from_static(b"data")).unwrap(), "");
        assert_eq!(rewrite.push(Bytes::from_static(b": 1\n")).unwrap(), "data: 1\n");
        let mut rewrite = blind(patterns(&[("two\nlines", "*")]));
        assert_eq!(rewrite.push(event).unwrap(), "");
        assert_eq!(rewrite.push(Bytes::from_static(b"two\nli")).unwrap(), "");
        assert_eq!(rewrite.push(Bytes::from_static(b"nes\n")).unwrap(), "");
        assert_eq!(rewrite.finish().unwrap(), "data: s3cret\n\n*\n");
    }
}
