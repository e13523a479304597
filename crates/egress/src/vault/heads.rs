//! What secrets begin with, and whether a text has that anywhere.
//!
//! The sandbox chooses the text and sees how long it takes, so the work depends on the text alone.

use std::hash::{BuildHasher as _, RandomState};

/// How much of a secret is looked for at first.
pub(super) const HEAD: usize = 4;
/// More than so many are looked for by a table.
const FEW: usize = 8;
/// How many numbers a head may have in the table, as bits of an index.
const BITS: u32 = 16;

pub(super) enum Heads {
    Few(Vec<Head>),
    Many(Table),
}

/// What a secret begins with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    bytes: [u8; HEAD],
    /// Without what is beyond the end of a short one.
    mask: [u8; HEAD],
}

/// Has a mark at the number of every head, as far as the shortest goes. What is no head may have the
/// same number; the numbers are other ones each time, so that they say nothing of what is looked for.
pub(super) struct Table {
    marks: Vec<u64>,
    mask: u64,
    factor: u64,
}

impl Heads {
    pub(super) fn new<'a>(secrets: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut all = Vec::new();
        for head in secrets.map(Head::new) {
            // Those that begin alike are beside each other.
            if all.last() != Some(&head) {
                all.push(head);
            }
        }
        if all.len() <= FEW { Self::Few(all) } else { Self::Many(Table::new(&all)) }
    }

    /// Whether one may begin like this. What follows does not matter.
    pub(super) fn begin(&self, window: u64) -> bool {
        match self {
            Self::Few(heads) => heads.iter().any(|head| head.is(window)),
            Self::Many(table) => table.has(window),
        }
    }

    /// Whether one may be anywhere in a text.
    pub(super) fn are_in(&self, text: &[u8]) -> bool {
        match self {
            Self::Few(heads) => heads.iter().any(|head| head.is_in(text)),
            Self::Many(table) => {
                text.windows(HEAD).fold(false, |found, at| found | table.has(window(at)))
            }
        }
    }
}

/// The first bytes of a text, as a number.
pub(super) fn window(text: &[u8]) -> u64 {
    if let Some(window) = text.first_chunk::<HEAD>() {
        return u32::from_le_bytes(*window).into();
    }
    text.iter().rev().fold(0, |window, byte| window << 8 | u64::from(*byte))
}

impl Head {
    fn new(secret: &[u8]) -> Self {
        let mut head = Self { bytes: [0; HEAD], mask: [0; HEAD] };
        for ((byte, mask), of) in head.bytes.iter_mut().zip(&mut head.mask).zip(secret) {
            (*byte, *mask) = (*of, u8::MAX);
        }
        head
    }

    fn is(self, window: u64) -> bool {
        let number = |bytes| u64::from(u32::from_le_bytes(bytes));
        (window ^ number(self.bytes)) & number(self.mask) == 0
    }

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

impl Table {
    fn new(heads: &[Head]) -> Self {
        let masks = heads.iter().map(|head| window(&head.mask));
        let mut table = Self {
            marks: vec![0; 1 << (BITS - u64::BITS.ilog2())],
            mask: masks.fold(u64::MAX, |all, mask| all & mask),
            factor: RandomState::new().hash_one(0) | 1,
        };
        for head in heads {
            let (place, mark) = table.mark(window(&head.bytes));
            if let Some(marks) = table.marks.get_mut(place) {
                *marks |= mark;
            }
        }
        table
    }

    fn has(&self, window: u64) -> bool {
        let (place, mark) = self.mark(window);
        self.marks.get(place).is_some_and(|marks| marks & mark != 0)
    }

    /// Which bit of which word is the mark of a text.
    fn mark(&self, window: u64) -> (usize, u64) {
        let number = (window & self.mask).wrapping_mul(self.factor) >> (u64::BITS - BITS);
        let place = usize::try_from(number / u64::from(u64::BITS)).unwrap_or(usize::MAX);
        (place, 1 << (number % u64::from(u64::BITS)))
    }
}
