//! Finds and replaces texts while they stream by, wherever the pieces are cut.
//!
//! One pass from left to right: at a position the longest text wins, and what was put in is not
//! looked at again. What is held back of a piece is the beginning of something, or, where the texts
//! are secret, does not depend on them.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;

use super::encode::Wiped;

/// About what becomes of a piece at once.
const STEP: usize = 64 << 10;
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

    /// Whether any of them is in a whole text.
    pub(super) fn has(&self, text: &[u8]) -> bool {
        matches!(self.replace(text, &mut { usize::MAX }), Ok(Cow::Owned(_)) | Err(Overgrown))
    }

    /// Replaces in a whole text, which takes from `room` what it becomes longer by.
    pub(super) fn replace<'t>(
        &self,
        text: &'t [u8],
        room: &mut usize,
    ) -> Result<Cow<'t, [u8]>, Overgrown> {
        let mut out = None;
        let end = self.run(text, Until::Position(text.len()), room, &mut out)?;
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

    /// How much longer a text of this length can become.
    fn growth(&self, length: usize) -> usize {
        let of = |pattern: &Pattern| {
            let each = pattern.put.len().saturating_sub(pattern.find.len());
            length.saturating_mul(each).div_ceil(pattern.find.len().max(1))
        };
        self.all.iter().map(of).max().unwrap_or(0)
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

    /// How much to push at once, so that little is in memory of what that becomes.
    pub fn step(&self) -> usize {
        match self.hold {
            Hold::Beginnings => (STEP / (1 + self.patterns.growth(STEP) / STEP)).max(1),
            // What is put in is short.
            Hold::Blindly => usize::MAX,
        }
    }

    /// How much memory it takes to read the body whole and to rewrite it, if it should be.
    pub fn needs(&self) -> Option<usize> {
        let length = self.length.filter(|length| *length <= Self::WHOLE)?;
        let length = usize::try_from(length).ok()?;
        Some(length + self.patterns.growth(length).min(self.room))
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
mod tests;
