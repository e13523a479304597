//! Entries as they are written.

use super::header::BLOCK;

/// An entry of an archive that we write.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    block: [u8; BLOCK],
    /// What comes before it and describes it.
    before: Vec<u8>,
}

impl Packed {
    /// A file of root's with this much content after it.
    pub(crate) fn file(name: &str, size: u64) -> Self {
        let packed = Self::new(b'0', name.as_bytes(), size);
        if name.len() < 100 { packed } else { packed.described(b'L', name.as_bytes()) }
    }

    pub(crate) fn directory(name: &str) -> Self {
        Self::new(b'5', name.as_bytes(), 0).mode(0o755)
    }

    pub(crate) fn new(kind: u8, name: &[u8], size: u64) -> Self {
        let mut packed = Self { block: [0; BLOCK], before: Vec::new() };
        packed.set(0, name.get(..100).unwrap_or(name));
        packed.set(156, &[kind]);
        packed.set(257, b"ustar\x0000");
        packed
            .mode(0o644)
            .number(108, 8, 0)
            .number(116, 8, 0)
            .number(136, 12, 0)
            .number(124, 12, size)
    }

    pub(crate) fn mode(self, mode: u32) -> Self {
        self.number(100, 8, mode.into())
    }

    /// Octal digits where they fit the field, and otherwise a binary number.
    pub(crate) fn number(mut self, at: usize, length: usize, value: u64) -> Self {
        let digits = format!("{value:0width$o}", width = length - 1);
        if digits.len() < length {
            self.set(at, digits.as_bytes());
        } else {
            self.set(at, &[0x80]);
            self.set(at + length - 8, &value.to_be_bytes());
        }
        self
    }

    pub(crate) fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(field) = self.block.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }

    /// Describes it beyond what its block holds.
    pub(crate) fn described(mut self, kind: u8, text: &[u8]) -> Self {
        let own = Self::new(kind, b"described", text.len() as u64);
        self.before.extend(own.bytes());
        self.before.extend(text);
        self.before.resize(self.before.len().next_multiple_of(BLOCK), 0);
        self
    }

    /// What comes before its content.
    pub(crate) fn bytes(mut self) -> Vec<u8> {
        self.set(148, &[b' '; 8]);
        let sum: u64 = self.block.iter().map(|byte| u64::from(*byte)).sum();
        self.set(148, format!("{sum:06o}\0 ").as_bytes());
        [self.before, self.block.to_vec()].concat()
    }
}

/// What fills up the last block of this much content.
pub(crate) fn padding(size: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    let missing = usize::try_from(size.wrapping_neg() % BLOCK as u64).unwrap_or_default();
    ZEROS.get(..missing).unwrap_or_default()
}

/// What an archive ends with.
pub(crate) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];
