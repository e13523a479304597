//! Finds and replaces texts while they stream by, wherever the pieces are cut.
//!
//! One pass from left to right: at a position the longest text wins, and what was put in is not
//! looked at again. What is held back of a piece is the beginning of something, or, where secrets
//! are looked for, does not depend on them.

use std::{borrow::Cow, fmt, sync::Arc, task::Poll};

use bytes::Bytes;

use super::{
    encode::Wiped,
    redaction::Redaction,
    spellings::{Spellings, Work},
};

/// About what becomes of a piece at once.
const STEP: usize = 64 << 10;
/// What is put in takes a multiple of this.
const CHARGE: usize = 256;

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

/// A body on its way, in which texts or secrets are looked for.
pub struct Rewrite {
    sought: Sought,
    length: Option<u64>,
}

/// What is looked for, which says what is held back of a piece until more comes or the body ends.
enum Sought {
    /// What may be the beginning of a text is held back. Whoever sees the pieces learns how the
    /// texts begin.
    Texts {
        patterns: Arc<Patterns>,
        held: Vec<u8>,
        /// How much longer the whole may become.
        room: usize,
    },
    /// See [`Spellings::blind`].
    Secrets(Redaction),
}

/// What is at a position.
enum Sight<'a> {
    Nothing,
    Match(&'a Pattern),
    /// The text ends before that can be said.
    Perhaps,
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

    /// Replaces in a whole text, which takes from `room` what it becomes longer by.
    pub(super) fn replace<'t>(
        &self,
        text: &'t [u8],
        room: &mut usize,
    ) -> Result<Cow<'t, [u8]>, Overgrown> {
        let mut out = None;
        let end = self.run(text, true, room, &mut out)?;
        Ok(end.whole(text, out))
    }

    /// Goes through the text as far as it can be decided, which is all of it if it is `over`.
    fn run(
        &self,
        text: &[u8],
        over: bool,
        room: &mut usize,
        out: &mut Option<Vec<u8>>,
    ) -> Result<End, Overgrown> {
        let (mut copied, mut at) = (0, 0);
        while let Some(found) = self.begins.next(text, at) {
            let rest = text.get(found..).unwrap_or_default();
            match self.look(rest, over) {
                Sight::Nothing => at = found + 1,
                Sight::Perhaps => return Ok(End { copied, decided: found }),
                Sight::Match(pattern) => {
                    *room = room.checked_sub(pattern.charge()).ok_or(Overgrown)?;
                    let out = out.get_or_insert_with(|| Vec::with_capacity(text.len()));
                    out.extend_from_slice(text.get(copied..found).unwrap_or_default());
                    out.extend_from_slice(&pattern.put);
                    at = found + pattern.find.len();
                    copied = at;
                }
            }
        }
        Ok(End { copied, decided: text.len() })
    }

    /// Takes the next piece, or the last if it is `over`, and gives what can be passed on. The rest is
    /// held back.
    fn take(
        &self,
        piece: Bytes,
        held: &mut Vec<u8>,
        room: &mut usize,
        over: bool,
    ) -> Result<Bytes, Overgrown> {
        let text = if held.is_empty() {
            piece
        } else {
            held.extend_from_slice(&piece);
            Bytes::from(std::mem::take(held))
        };
        let mut out = None;
        let end = self.run(&text, over, room, &mut out)?;
        held.extend_from_slice(text.get(end.decided..).unwrap_or_default());
        // Where nothing was replaced the piece goes on as it came, without a copy.
        let Some(mut out) = out else { return Ok(text.slice(..end.decided)) };
        out.extend_from_slice(text.get(end.copied..end.decided).unwrap_or_default());
        Ok(Bytes::from(out))
    }

    /// How much longer a text of this length can become.
    fn growth(&self, length: usize) -> usize {
        let of = |pattern: &Pattern| {
            let each = pattern.put.len().saturating_sub(pattern.find.len());
            length.saturating_mul(each).div_ceil(pattern.find.len().max(1))
        };
        self.all.iter().map(of).max().unwrap_or(0)
    }

    fn look(&self, rest: &[u8], over: bool) -> Sight<'_> {
        for pattern in &self.all {
            if rest.starts_with(&pattern.find) {
                return Sight::Match(pattern);
            }
            if !over && pattern.find.starts_with(rest) {
                return Sight::Perhaps;
            }
        }
        Sight::Nothing
    }
}

impl Pattern {
    /// What it takes of the room. Rounded, so that whoever fills it does not learn how long a secret is.
    fn charge(&self) -> usize {
        let grown = self.put.len().saturating_sub(self.find.len());
        grown.max(1).next_multiple_of(CHARGE)
    }
}

/// How far a text was gone through. What lies between is yet to be copied.
struct End {
    copied: usize,
    decided: usize,
}

impl End {
    /// The whole of a text that was gone through.
    fn whole(self, text: &[u8], out: Option<Vec<u8>>) -> Cow<'_, [u8]> {
        let Some(mut out) = out else { return Cow::Borrowed(text) };
        out.extend_from_slice(text.get(self.copied..).unwrap_or_default());
        Cow::Owned(out)
    }
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

    pub(super) fn new(patterns: Arc<Patterns>, room: usize, length: Option<u64>) -> Self {
        Self { sought: Sought::Texts { patterns, held: Vec::new(), room }, length }
    }

    pub(super) fn redacting(secrets: Arc<Spellings>, length: Option<u64>) -> Self {
        Self { sought: Sought::Secrets(Redaction::new(secrets)), length }
    }

    /// How long the body was announced to be, before anything is replaced.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// How much to push at once, so that little is in memory of what that becomes.
    pub fn step(&self) -> usize {
        match &self.sought {
            Sought::Texts { patterns, .. } => (STEP / (1 + patterns.growth(STEP) / STEP)).max(1),
            // What is put in is short.
            Sought::Secrets(_) => usize::MAX,
        }
    }

    /// How much memory it takes to read the body whole and to rewrite it, if it should be.
    pub fn needs(&self) -> Option<usize> {
        let Sought::Texts { patterns, room, .. } = &self.sought else { return None };
        let length = self.length.filter(|length| *length <= Self::WHOLE)?;
        let length = usize::try_from(length).ok()?;
        Some(length + patterns.growth(length).min(*room))
    }

    /// Takes the next piece and gives what can be passed on, once it is known: see [`Self::resume`].
    pub fn push(&mut self, piece: Bytes, work: &mut Work) -> Result<Poll<Bytes>, Overgrown> {
        match &mut self.sought {
            Sought::Texts { patterns, held, room } => {
                patterns.take(piece, held, room, false).map(Poll::Ready)
            }
            Sought::Secrets(redaction) => {
                redaction.take(&piece);
                Ok(redaction.resume(work))
            }
        }
    }

    /// Gives what was held back: the body is over.
    pub fn finish(&mut self, work: &mut Work) -> Result<Poll<Bytes>, Overgrown> {
        match &mut self.sought {
            Sought::Texts { patterns, held, room } => {
                patterns.take(Bytes::new(), held, room, true).map(Poll::Ready)
            }
            Sought::Secrets(redaction) => {
                redaction.end();
                Ok(redaction.resume(work))
            }
        }
    }

    /// Goes on with what was too much work before.
    pub fn resume(&mut self, work: &mut Work) -> Poll<Bytes> {
        match &mut self.sought {
            Sought::Texts { .. } => Poll::Ready(Bytes::new()),
            Sought::Secrets(redaction) => redaction.resume(work),
        }
    }

    /// Takes a whole body.
    pub fn whole(self, body: Bytes) -> Result<Bytes, Overgrown> {
        match self.sought {
            Sought::Texts { patterns, mut held, mut room } => {
                patterns.take(body, &mut held, &mut room, true)
            }
            Sought::Secrets(mut redaction) => {
                redaction.take(&body);
                redaction.end();
                loop {
                    if let Poll::Ready(clean) = redaction.resume(&mut Work::new(Work::TURN)) {
                        return Ok(clean);
                    }
                }
            }
        }
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
    let patterns = Patterns::new(pairs);
    let (mut out, mut held, mut room) = (Vec::new(), Vec::new(), usize::MAX);
    for piece in pieces {
        let piece = Bytes::copy_from_slice(piece);
        out.extend_from_slice(&patterns.take(piece, &mut held, &mut room, false)?);
    }
    out.extend_from_slice(&patterns.take(Bytes::new(), &mut held, &mut room, true)?);
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
