//! Finds secrets in text, in whatever way they are spelt there: each letter as it is, or as URLs,
//! JSON or HTML write it, and as they write what another of them wrote.
//!
//! The sandbox chooses the text and sees how long it takes. So the work depends on the text alone,
//! until four letters of a secret are there, and then on every thirty-two that are.

use std::{fmt, ops::Range};

use secrecy::zeroize::Zeroizing;

use super::{
    encode::Wiped,
    letters::{BLOCK, Letters, is_more, rest, specials},
};

/// How much of a secret is looked for at first.
const HEAD: usize = 4;
/// So many places are looked at together.
const TOGETHER: usize = 256;
/// A spelling is at most so many times as long as its secret.
const LONGER: usize = 6;
/// What is held back of a text is a multiple of this.
const HELD: usize = 256;

/// Secrets to find.
pub(super) struct Spellings {
    /// The longest first, none twice, none empty.
    secrets: Vec<Wiped>,
    heads: Vec<Head>,
}

/// What a secret begins with.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Head {
    bytes: [u8; HEAD],
    /// Without what is beyond the end of a short one.
    mask: [u8; HEAD],
}

impl Spellings {
    pub(super) fn new<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut secrets = Vec::new();
        for text in texts {
            secrets.push(Zeroizing::new(text.to_vec()));
            // As forms write a space.
            let plus = |byte: &u8| if *byte == b' ' { b'+' } else { *byte };
            secrets.push(Zeroizing::new(text.iter().map(plus).collect()));
            // A secret may look as if it were spelt. Then so does every spelling of it.
            secrets.push(read(text));
        }
        Self::of(secrets)
    }

    pub(super) fn of_all<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        Self::of(all.flat_map(|one| one.secrets.iter().cloned()).collect())
    }

    fn of(mut secrets: Vec<Wiped>) -> Self {
        secrets.retain(|secret| !secret.is_empty());
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.as_slice().cmp(b.as_slice())));
        secrets.dedup();
        let mut heads = Vec::new();
        for head in secrets.iter().map(|secret| Head::new(secret)) {
            if !heads.contains(&head) {
                heads.push(head);
            }
        }
        Self { secrets, heads }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Whether any of them is in a whole text.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        self.find(text, text.len()).next().is_some()
    }

    /// Where the last part of a text begins that must be held back so that nobody learns what is
    /// looked for: as much as the longest spelling may need, whatever it says, but nothing before
    /// the end of a line, so that events are passed on when they come.
    pub(super) fn blind(&self, text: &[u8]) -> usize {
        // Rounded, so that even the length is not told exactly.
        let longest = self.secrets.first().map_or(0, |secret| secret.len() * LONGER);
        let far = text.len().saturating_sub(longest.next_multiple_of(HELD));
        let spans_lines = self.secrets.iter().any(|secret| secret.contains(&b'\n'));
        let line = if spans_lines { None } else { memchr::memrchr(b'\n', text) };
        line.map_or(far, |line| far.max(line + 1))
    }

    /// The spellings that begin before a position, from left to right, the longest secret first.
    pub(super) fn find(&self, text: &[u8], limit: usize) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let found = self.next(text, at..limit)?;
            at = found.end;
            Some(found)
        })
    }

    /// The first spelling that begins in a part of the text.
    fn next(&self, text: &[u8], places: Range<usize>) -> Option<Range<usize>> {
        let Range { mut start, end } = places;
        // From there on a head is cut off.
        let last = text.len().saturating_sub(HEAD - 1);
        while start < end {
            let until = if start < last { end.min(start + TOGETHER).min(last) } else { end };
            if start >= last || self.perhaps(text, start, until) {
                let found = (start..until).find_map(|at| Some(at..at + self.spelt(text, at)?));
                if found.is_some() {
                    return found;
                }
            }
            start = until;
        }
        None
    }

    /// Whether a head may be at any of these places.
    fn perhaps(&self, text: &[u8], start: usize, until: usize) -> bool {
        let block = text.get(start..until + HEAD - 1).unwrap_or_default();
        if self.heads.iter().any(|head| head.is_in(block)) {
            return true;
        }
        specials(block).map(|found| start + found).any(|special| {
            let from = rest(text, special);
            if !is_more(from) {
                return false;
            }
            let before = text.get(special.saturating_sub(HEAD - 1)..special).unwrap_or_default();
            let mut block = [0; BLOCK];
            let after = window(Letters::new(from).fill(&mut block, HEAD));
            // The last bytes before it, and what is read from it on.
            let all = before.iter().rev().fold(after, |all, byte| all << 8 | u64::from(*byte));
            (0..=before.len()).any(|skipped| self.begin(all >> (8 * skipped)))
        })
    }

    /// How long the spelling is that is at a place.
    fn spelt(&self, text: &[u8], at: usize) -> Option<usize> {
        let text = rest(text, at);
        let is_special = || text.iter().take(HEAD).any(|byte| b"%\\&".contains(byte));
        let read = || window(Letters::new(text).fill(&mut [0; BLOCK], HEAD));
        if self.begin(window(text)) || is_special() && self.begin(read()) {
            return self.secrets.iter().find_map(|secret| spelt(text, secret));
        }
        None
    }

    /// Whether one of them begins like this.
    fn begin(&self, window: u64) -> bool {
        self.heads.iter().any(|head| head.is(window))
    }
}

/// The first bytes of a text, as a number.
fn window(text: &[u8]) -> u64 {
    if let Some(window) = text.first_chunk::<HEAD>() {
        return u32::from_le_bytes(*window).into();
    }
    text.iter().rev().fold(0, |window, byte| window << 8 | u64::from(*byte))
}

/// How long the spelling of a secret is with which a text begins.
fn spelt(text: &[u8], secret: &[u8]) -> Option<usize> {
    if text.starts_with(secret) {
        return Some(secret.len());
    }
    specials(text.get(..secret.len()).unwrap_or(text)).next()?;
    let most = secret.len() * LONGER;
    let mut letters = Letters::new(text.get(..most).unwrap_or(text));
    let (mut block, mut rest) = ([0; BLOCK], secret);
    while !rest.is_empty() {
        let next = letters.fill(&mut block, rest.len());
        rest = rest.strip_prefix(next).filter(|_| !next.is_empty())?;
    }
    Some(letters.read())
}

/// What a text says.
fn read(text: &[u8]) -> Wiped {
    let mut said = Zeroizing::new(Vec::with_capacity(text.len()));
    let (mut letters, mut block) = (Letters::new(text), [0; BLOCK]);
    loop {
        let next = letters.fill(&mut block, usize::MAX);
        if next.is_empty() {
            return said;
        }
        said.extend_from_slice(next);
    }
}

impl Head {
    fn new(secret: &[u8]) -> Self {
        let mut head = Self { bytes: [0; HEAD], mask: [0; HEAD] };
        for ((byte, mask), of) in head.bytes.iter_mut().zip(&mut head.mask).zip(secret) {
            (*byte, *mask) = (*of, u8::MAX);
        }
        head
    }

    /// Whether a window begins with it. What follows does not matter.
    fn is(self, window: u64) -> bool {
        let number = |bytes| u64::from(u32::from_le_bytes(bytes));
        (window ^ number(self.bytes)) & number(self.mask) == 0
    }

    /// Whether it is anywhere in a text, by work that depends on neither.
    fn is_in(self, text: &[u8]) -> bool {
        let [a, b, c, d] = self.bytes;
        let [_, in_b, in_c, in_d] = self.mask;
        let after = |count| text.get(count..).unwrap_or_default();
        let places = text.iter().zip(after(1)).zip(after(2)).zip(after(3));
        let least = places.fold(u8::MAX, |least, (((at, bt), ct), dt)| {
            least.min((at ^ a) | (bt ^ b) & in_b | (ct ^ c) & in_c | (dt ^ d) & in_d)
        });
        least == 0
    }
}

impl fmt::Debug for Spellings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spellings").field("count", &self.secrets.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
