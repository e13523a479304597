//! Finds secrets in text, in whatever way they are spelt there: each letter as it is, or as URLs,
//! JSON or HTML write it, and as they write what another of them wrote.
//!
//! The sandbox chooses the text and sees how long it takes. So the work depends on the text alone,
//! until four letters of a secret are there, and then on every thirty-two that are. Who fills a vault
//! may choose the secrets, too. So all are looked for together, and of a long one not more than a part
//! at any place, unless that is there: then it is taken out, and not looked at again.

use std::{fmt, ops::Range, sync::Arc};

use secrecy::zeroize::Zeroizing;

use super::{
    encode::Wiped,
    heads::{HEAD, Heads, window},
    letters::{AT_ONCE, BLOCK, Letters, is_special, letter, rest, specials},
};

/// What is found of a secret at least, if it has so much: of a longer one so many letters, or a
/// multiple, are taken out even if the rest does not follow. Nobody can guess so many at once, and what
/// secrets of a kind begin with is shorter.
const PART: usize = 512;
/// So many places are looked at together.
const TOGETHER: usize = 256;
/// A spelling is at most so many times as long as the longest secret.
const LONGER: usize = 6;
/// What is held back of a text is a multiple of this.
const HELD: usize = 256;

/// Secrets to find.
pub(super) struct Spellings {
    /// In the order of their letters, none twice, none empty.
    secrets: Vec<Secret>,
    heads: Heads,
    longest: usize,
    /// Whether one of them has more than a line.
    spans_lines: bool,
    /// Whether one of them looks as if it were spelt.
    look_spelt: bool,
}

struct Secret {
    text: Arc<Wiped>,
    /// Where the longest other one is that this begins with.
    within: Option<usize>,
}

/// How much may be looked at, about in letters.
#[derive(Debug)]
pub struct Work(usize);

/// What there is in a text.
pub(super) enum Seen {
    Nothing,
    Secret(Range<usize>),
    /// It was enough work. From there on it is not known.
    Tired(usize),
}

impl Work {
    /// What others can wait for: not more than a millisecond or two.
    pub const TURN: usize = 256 << 10;
    /// What a place costs at which something may begin.
    const PLACE: usize = 8;

    pub fn new(letters: usize) -> Self {
        Self(letters)
    }

    pub fn is_done(&self) -> bool {
        self.0 == 0
    }

    pub fn spend(&mut self, letters: usize) {
        self.0 = self.0.saturating_sub(letters);
    }
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
        Self::of(secrets.into_iter().map(Arc::new).collect())
    }

    pub(super) fn of_all<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        Self::of(all.flat_map(|one| one.secrets.iter().map(|it| Arc::clone(&it.text))).collect())
    }

    fn of(mut texts: Vec<Arc<Wiped>>) -> Self {
        texts.retain(|text| !text.is_empty());
        texts.sort_by(|a, b| a.as_slice().cmp(b.as_slice()));
        texts.dedup();
        let heads = Heads::new(texts.iter().map(|text| text.as_slice()));
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let spans_lines = texts.iter().any(|text| text.contains(&b'\n'));
        let look_spelt = texts.iter().any(|text| specials(text).next().is_some());
        let mut secrets: Vec<Secret> = Vec::with_capacity(texts.len());
        for text in texts {
            // Whatever it begins with is before it, and so are others that begin with that.
            let mut within = secrets.len().checked_sub(1);
            while let Some(other) = within.and_then(|at| secrets.get(at)) {
                if text.starts_with(&other.text) {
                    break;
                }
                within = other.within;
            }
            secrets.push(Secret { text, within });
        }
        Self { secrets, heads, longest, spans_lines, look_spelt }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Where the last part of a text begins that must be held back so that nobody learns what is
    /// looked for: as much as the longest spelling may need, whatever it says, but nothing before
    /// the end of a line, so that events are passed on when they come. The first part of the text was
    /// held back before.
    pub(super) fn blind(&self, text: &[u8], held: usize) -> usize {
        // Rounded, so that even the length is not told exactly.
        let far = text.len().saturating_sub((self.longest * LONGER).next_multiple_of(HELD));
        let line = if self.spans_lines { None } else { memchr::memrchr(b'\n', rest(text, held)) };
        line.map_or(far, |line| far.max(held + line + 1))
    }

    /// The first spelling that begins in a part of the text, the longest of those that begin there.
    pub(super) fn next(&self, text: &[u8], places: Range<usize>, work: &mut Work) -> Seen {
        let Range { mut start, end } = places;
        while start < end {
            let until = end.min(start + TOGETHER);
            work.spend(until - start);
            for at in self.perhaps(text, start..until) {
                work.spend(Work::PLACE);
                if let Some(length) = self.longest_of(rest(text, at), work) {
                    return Seen::Secret(at..at + length);
                }
                if work.is_done() && at + 1 < end {
                    return Seen::Tired(at + 1);
                }
            }
            if work.is_done() && until < end {
                return Seen::Tired(until);
            }
            start = until;
        }
        Seen::Nothing
    }

    /// The places at which a secret may begin, of a few that are beside each other.
    fn perhaps(&self, text: &[u8], places: Range<usize>) -> impl Iterator<Item = usize> {
        let Range { start, end } = places;
        let seen = text.get(start..end + HEAD - 1);
        let block = seen.unwrap_or_else(|| rest(text, start));
        let is_special = specials(block).next().is_some();
        let read = is_special.then(|| windows(text, start..end));
        // At the end a head may be cut off.
        let is_none = !is_special && seen.is_some() && !self.heads.are_in(block);
        let places = if is_none { end..end } else { start..end };
        places.filter(move |at| {
            let read = read.as_ref().and_then(|windows| windows.get(at - start).copied());
            let as_it_is = || window(rest(text, *at));
            read.is_some_and(|read| self.heads.begin(read))
                || (read.is_none() || self.look_spelt) && self.heads.begin(as_it_is())
        })
    }

    /// How long the longest spelling is with which a text begins.
    fn longest_of(&self, text: &[u8], work: &mut Work) -> Option<usize> {
        let text = text.get(..self.longest * LONGER).unwrap_or(text);
        let spelt = self.longest_read(Letters::new(text), work);
        // What follows may change how the end of it reads.
        let as_it_is = self.look_spelt.then(|| self.longest_read(Letters::as_they_are(text), work));
        spelt.max(as_it_is.flatten())
    }

    /// How long the longest secret is, or the longest part of one, with which a text begins.
    fn longest_read(&self, mut letters: Letters<'_>, work: &mut Work) -> Option<usize> {
        let (mut block, mut found) = ([0; BLOCK], None);
        // Those that begin with what was read, and how much that was.
        let (mut alike, mut depth) = (0..self.secrets.len(), 0);
        loop {
            // The shortest comes first.
            if self.at(alike.start).is_some_and(|first| first.text.len() == depth) {
                found = Some(letters.read());
                alike.start += 1;
            }
            let before = letters.clone();
            // Most differ soon.
            let next = letters.run(&mut block, depth.max(AT_ONCE).min(PART - depth % PART));
            if next.is_empty() || alike.is_empty() {
                return found;
            }
            let from = alike.start;
            self.narrow(&mut alike, depth, next);
            // Also if none is before what was read: time would tell on which side of it the first is.
            let ends = from..alike.start.max(from + 1);
            found = self.ended(ends, depth, next, &before).or(found);
            if alike.is_empty() {
                return found;
            }
            work.spend(next.len());
            let part = depth / PART;
            depth += next.len();
            if depth / PART > part {
                found = Some(letters.read());
            }
        }
    }

    fn at(&self, place: usize) -> Option<&Secret> {
        self.secrets.get(place)
    }

    /// Leaves those that go on like this after so many letters.
    fn narrow(&self, alike: &mut Range<usize>, depth: usize, next: &[u8]) {
        let all = self.secrets.get(alike.clone()).unwrap_or_default();
        let order = |secret: &Secret| {
            let rest = rest(&secret.text, depth);
            rest.get(..next.len()).unwrap_or(rest).cmp(next)
        };
        // Most have little in common with others, or all.
        if all.first().is_some_and(|first| order(first).is_eq())
            && all.last().is_some_and(|last| order(last).is_eq())
        {
            return;
        }
        let less = all.partition_point(|secret| order(secret).is_lt());
        let like = all.partition_point(|secret| order(secret).is_le());
        *alike = alike.start + less..alike.start + like;
    }

    /// How far the longest of these goes that has ended within what was read after so many letters.
    fn ended(
        &self,
        places: Range<usize>,
        depth: usize,
        next: &[u8],
        before: &Letters<'_>,
    ) -> Option<usize> {
        let mut place = places.end.checked_sub(1);
        while let Some(secret) = place.and_then(|place| self.at(place)) {
            let left = rest(&secret.text, depth);
            if left.is_empty() {
                return None;
            }
            if next.starts_with(left)
                && let Some(end) = before.clone().skip(left.len())
            {
                return Some(end);
            }
            place = secret.within;
        }
        None
    }
}

/// What is read at each of a few places, as far as a head goes.
fn windows(text: &[u8], places: Range<usize>) -> [u64; TOGETHER] {
    let from = |at: usize| window(Letters::new(rest(text, at)).fill(&mut [0; BLOCK], HEAD));
    let Range { start, end } = places;
    let mut windows = [0; TOGETHER];
    let mut after = from(end);
    for (at, byte) in text.get(start..end).unwrap_or_default().iter().enumerate().rev() {
        let (first, length) = if is_special(*byte) {
            let (letter, read) = letter(rest(text, start + at));
            let next = at + read;
            let known = windows.get(next).filter(|_| start + next < end);
            after = known.copied().unwrap_or_else(|| from(start + next));
            letter.number()
        } else {
            (u64::from(*byte), 1)
        };
        after = (first | after << (8 * length)) & u64::from(u32::MAX);
        if let Some(window) = windows.get_mut(at) {
            *window = after;
        }
    }
    windows
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

impl fmt::Debug for Spellings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spellings").field("count", &self.secrets.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
