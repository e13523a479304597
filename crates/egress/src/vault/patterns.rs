//! Finds and replaces texts while they stream by, wherever the pieces are cut.
//!
//! One pass from left to right: at a position the longest text wins, and what was put in is not
//! looked at again. What is held back of a piece is the beginning of something, or, where secrets
//! are looked for, does not depend on them.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;

use super::{encode::Wiped, spellings::Spellings};

/// About what becomes of a piece at once.
const STEP: usize = 64 << 10;
/// What is put in the place of a secret.
pub(super) const REDACTED: &[u8] = b"[REDACTED]";

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
    held: Vec<u8>,
    /// How much longer the whole may become.
    room: usize,
    length: Option<u64>,
}

/// What is looked for, which says what is held back of a piece until more comes or the body ends.
enum Sought {
    /// What may be the beginning of a text is held back. Whoever sees the pieces learns how the
    /// texts begin.
    Texts(Arc<Patterns>),
    /// See [`Spellings::blind`].
    Secrets(Arc<Spellings>),
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
        Ok(End { copied, decided: text.len() })
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

/// Takes the secrets out of a whole text.
pub(super) fn redacted<'t>(secrets: &Spellings, text: &'t [u8]) -> Cow<'t, [u8]> {
    let mut out = None;
    redact(secrets, text, text.len(), &mut out).whole(text, out)
}

/// Takes out the secrets that begin before a position, before which all can be decided.
fn redact(secrets: &Spellings, text: &[u8], limit: usize, out: &mut Option<Vec<u8>>) -> End {
    let mut copied = 0;
    for found in secrets.find(text, limit) {
        let out = out.get_or_insert_with(|| Vec::with_capacity(text.len()));
        out.extend_from_slice(text.get(copied..found.start).unwrap_or_default());
        out.extend_from_slice(REDACTED);
        copied = found.end;
    }
    End { copied, decided: limit.max(copied) }
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
        Self { sought: Sought::Texts(patterns), held: Vec::new(), room, length }
    }

    pub(super) fn redacting(secrets: Arc<Spellings>, length: Option<u64>) -> Self {
        Self { sought: Sought::Secrets(secrets), held: Vec::new(), room: 0, length }
    }

    /// How long the body was announced to be, before anything is replaced.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// How much to push at once, so that little is in memory of what that becomes.
    pub fn step(&self) -> usize {
        match &self.sought {
            Sought::Texts(texts) => (STEP / (1 + texts.growth(STEP) / STEP)).max(1),
            // What is put in is short.
            Sought::Secrets(_) => usize::MAX,
        }
    }

    /// How much memory it takes to read the body whole and to rewrite it, if it should be.
    pub fn needs(&self) -> Option<usize> {
        let length = self.length.filter(|length| *length <= Self::WHOLE)?;
        let length = usize::try_from(length).ok()?;
        let growth = match &self.sought {
            Sought::Texts(texts) => texts.growth(length).min(self.room),
            Sought::Secrets(_) => length.saturating_mul(REDACTED.len()),
        };
        Some(length + growth)
    }

    /// Takes the next piece and gives what can be passed on.
    pub fn push(&mut self, piece: Bytes) -> Result<Bytes, Overgrown> {
        let text = self.after_held(piece);
        self.take(&text, false)
    }

    /// Gives what was held back: the body is over.
    pub fn finish(self) -> Result<Bytes, Overgrown> {
        self.whole(Bytes::new())
    }

    /// Takes a whole body.
    pub fn whole(mut self, body: Bytes) -> Result<Bytes, Overgrown> {
        let text = self.after_held(body);
        self.take(&text, true)
    }

    fn after_held(&mut self, piece: Bytes) -> Bytes {
        if self.held.is_empty() {
            return piece;
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(&piece);
        Bytes::from(text)
    }

    fn take(&mut self, text: &Bytes, over: bool) -> Result<Bytes, Overgrown> {
        let mut out = None;
        let end = match &self.sought {
            Sought::Texts(texts) => texts.run(text, over, &mut self.room, &mut out)?,
            Sought::Secrets(secrets) => {
                let limit = if over { text.len() } else { secrets.blind(text) };
                redact(secrets, text, limit, &mut out)
            }
        };
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
    let mut rewrite = Rewrite::new(patterns, usize::MAX, None);
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
