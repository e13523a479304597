//! The block that every entry begins with.

use osb_sys::unpack::Moment;

use super::{ArchiveError, Entry, Kind};

pub(super) const BLOCK: usize = 512;

const MALFORMED: ArchiveError = ArchiveError::Malformed("the archive is not one that tar writes");

/// A block whose sum is right.
#[derive(Debug, Clone)]
pub(super) struct Header([u8; BLOCK]);

/// Where in the block a field is.
type Field = std::ops::Range<usize>;

const NAME: Field = 0..100;
const MODE: Field = 100..108;
const USER: Field = 108..116;
const GROUP: Field = 116..124;
const SIZE: Field = 124..136;
const MODIFIED: Field = 136..148;
const SUM: Field = 148..156;
const KIND: usize = 156;
const LINK: Field = 157..257;
const MAGIC: Field = 257..263;
const PREFIX: Field = 345..500;

impl Header {
    pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Self, ArchiveError> {
        let header = Self(*block);
        let said = number(header.field(SUM)).ok_or(MALFORMED)?;
        let byte = |(at, byte): (usize, &u8)| if SUM.contains(&at) { b' ' } else { *byte };
        let summed = block.iter().enumerate().map(byte);
        // Some old programs summed up signed numbers.
        let unsigned: i64 = summed.clone().map(i64::from).sum();
        let signed: i64 = summed.map(|byte| i64::from(byte.cast_signed())).sum();
        if said == unsigned || said == signed { Ok(header) } else { Err(MALFORMED) }
    }

    pub(super) fn field(&self, field: Field) -> &[u8] {
        self.0.get(field).unwrap_or_default()
    }

    pub(super) fn kind(&self) -> u8 {
        self.0.get(KIND).copied().unwrap_or_default()
    }

    pub(super) fn size(&self) -> Result<u64, ArchiveError> {
        let size = number(self.field(SIZE)).and_then(|size| u64::try_from(size).ok());
        size.ok_or(ArchiveError::Malformed("an entry has an impossible size"))
    }

    /// What the block alone says of the entry.
    pub(super) fn entry(&self) -> Result<Entry, ArchiveError> {
        let kind = match self.kind() {
            b'0' | 0 | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' | b'4' => Kind::Device,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            _ => return Err(ArchiveError::Malformed("an entry is of a kind that is not known")),
        };
        let mut path = text(self.field(NAME)).to_vec();
        let prefix = text(self.field(PREFIX));
        // The format of GNU has other things there.
        if self.field(MAGIC) == b"ustar\0" && !prefix.is_empty() {
            path = [prefix, b"/", &path].concat();
        }
        let id = |field| number(self.field(field)).map(|id| u32::try_from(id).ok());
        Ok(Entry {
            path,
            kind,
            link: text(self.field(LINK)).to_vec(),
            user: id(USER).ok_or(MALFORMED)?,
            group: id(GROUP).ok_or(MALFORMED)?,
            mode: u32::try_from(number(self.field(MODE)).ok_or(MALFORMED)? & 0o7777)
                .map_err(|_| MALFORMED)?,
            modified: Moment {
                seconds: number(self.field(MODIFIED)).ok_or(MALFORMED)?,
                nanoseconds: 0,
            },
            extended: Vec::new(),
            size: self.size()?,
            sparse: None,
        })
    }
}

/// A field up to its first zero.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Octal digits with blanks around them, or, if the first bit is set, a number of 95 or fewer bits.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 == 0 {
        let trimmed = text(field).trim_ascii();
        if trimmed.is_empty() {
            return Some(0);
        }
        if !trimmed.iter().all(|digit| (b'0'..=b'7').contains(digit)) {
            return None;
        }
        return i64::from_str_radix(std::str::from_utf8(trimmed).ok()?, 8).ok();
    }
    // The second bit is the sign.
    let negative = first & 0x40 != 0;
    let start = if negative { i128::from(*first) - 0x100 } else { i128::from(first & 0x3f) };
    let value = rest.iter().try_fold(start, |value, byte| {
        value.checked_mul(256).map(|value| value + i128::from(*byte))
    })?;
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_every_tar_writes_them() {
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"    644 ", Some(0o644)),
            (b"644\0junk", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"77777777777", Some((1 << 33) - 1)),
            (b"\x80\0\0\0\0\0\0\x02\0\0\0\0", Some(1 << 33)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"-0000001", None),
            (b"0000648\0", None),
        ] {
            assert_eq!(number(field), value, "{field:?}");
        }
    }
}
