//! Files with holes, which archives leave out in four ways.

use std::io::BufRead;

use super::{
    Archive, ArchiveError, Entry, Kind,
    header::{BLOCK, Header, number},
    pax::decimal,
};

/// The most parts that a file with holes may have, as many as fit a description.
const MOST_PARTS: usize = 1 << 17;

pub(super) fn malformed() -> ArchiveError {
    ArchiveError::Malformed("the holes of a file are described wrongly")
}

/// A file with holes: how long it is, and what parts of it the archive has, as offset and length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sparse {
    pub(crate) length: u64,
    pub(crate) parts: Vec<(u64, u64)>,
}

impl Sparse {
    /// Checks that the parts lie one after another in the file, and are what the archive has.
    fn checked(self, stored: u64) -> Result<Self, ArchiveError> {
        let (mut end, mut sum) = (0, 0_u64);
        for (offset, length) in &self.parts {
            let next = offset.checked_add(*length).ok_or_else(malformed)?;
            if *offset < end || next > self.length {
                return Err(malformed());
            }
            (end, sum) = (next, sum + length);
        }
        let fits = sum == stored && self.length <= i64::MAX.cast_unsigned();
        if fits { Ok(self) } else { Err(malformed()) }
    }
}

/// What pax records tell about holes.
#[derive(Debug, Default)]
pub(super) struct Told {
    major: Option<u64>,
    name: Option<Vec<u8>>,
    length: Option<u64>,
    parts: Vec<(u64, u64)>,
    /// An offset whose length is still to come.
    offset: Option<u64>,
    is_sparse: bool,
}

impl Told {
    pub(super) fn hear(&mut self, key: &[u8], value: Vec<u8>) -> Result<(), ArchiveError> {
        let number = || decimal(&value).ok_or_else(malformed);
        self.is_sparse = true;
        match key {
            b"major" => self.major = Some(number()?),
            b"name" => self.name = Some(value),
            b"realsize" | b"size" => self.length = Some(number()?),
            b"offset" => self.offset = Some(number()?),
            b"numbytes" => {
                let offset = self.offset.take().ok_or_else(malformed)?;
                self.parts.push((offset, number()?));
            }
            b"map" => {
                let mut numbers = value.split(|byte| *byte == b',').map(decimal);
                while let Some(offset) = numbers.next() {
                    let length = numbers.next().flatten().ok_or_else(malformed)?;
                    self.parts.push((offset.ok_or_else(malformed)?, length));
                }
            }
            // How many parts there are, and which of the formats it is.
            _ => {}
        }
        if self.parts.len() > MOST_PARTS { Err(malformed()) } else { Ok(()) }
    }

    /// Gives the entry the name that it has without what stands there for those who cannot read it.
    pub(super) fn name(&mut self, entry: &mut Entry) {
        if let Some(name) = self.name.take() {
            entry.path = name;
        }
    }
}

impl<R: BufRead> Archive<R> {
    /// Finds out where the content of a file belongs, and reads what the archive has of that before
    /// the content itself.
    pub(super) fn sparse(
        &mut self,
        header: &Header,
        entry: &mut Entry,
        told: Told,
    ) -> Result<Option<Sparse>, ArchiveError> {
        if entry.kind != Kind::File {
            return Ok(None);
        }
        let sparse = if header.kind() == b'S' {
            self.of_gnu(header)?
        } else if told.is_sparse {
            let length = told.length.ok_or_else(malformed)?;
            let before = self.left;
            let parts = if told.major == Some(1) { self.map()? } else { told.parts };
            entry.size -= before - self.left;
            Sparse { length, parts }
        } else {
            return Ok(None);
        };
        sparse.checked(entry.size).map(Some)
    }

    /// Four parts in the header, and 21 in each block after it as long as one says that another one
    /// follows. These blocks are not part of the content.
    fn of_gnu(&mut self, header: &Header) -> Result<Sparse, ArchiveError> {
        let unsigned = |field: &[u8]| {
            number(field).and_then(|number| u64::try_from(number).ok()).ok_or_else(malformed)
        };
        let length = unsigned(header.field(483..495))?;
        let mut parts = Vec::new();
        let mut read = |fields: &[u8]| {
            for part in fields.chunks_exact(24) {
                let (offset, length) = part.split_at(12);
                if offset.first() == Some(&0) {
                    break;
                }
                parts.push((unsigned(offset)?, unsigned(length)?));
            }
            if parts.len() > MOST_PARTS { Err(malformed()) } else { Ok(()) }
        };
        read(header.field(386..482))?;
        let mut more = header.field(482..483) != [0];
        while more {
            let block = self.block()?.ok_or_else(malformed)?;
            read(block.get(..504).unwrap_or_default())?;
            more = block.get(504) != Some(&0);
        }
        Ok(Sparse { length, parts })
    }

    /// Decimal numbers at the beginning of the content, each on a line: how many parts there are, then
    /// their offsets and lengths. Zeros fill up the last block.
    fn map(&mut self) -> Result<Vec<(u64, u64)>, ArchiveError> {
        let mut block = [0; BLOCK];
        let mut at = BLOCK;
        let mut next = |archive: &mut Self| {
            let mut digits = Vec::new();
            loop {
                if at == BLOCK {
                    (block, at) = (archive.content_block()?, 0);
                }
                let byte = block.get(at).copied().unwrap_or_default();
                at += 1;
                if byte == b'\n' {
                    return decimal(&digits).ok_or_else(malformed);
                }
                digits.push(byte);
                if digits.len() > 20 {
                    return Err(malformed());
                }
            }
        };
        let count = usize::try_from(next(self)?).ok().filter(|count| *count <= MOST_PARTS);
        let count = count.ok_or_else(malformed)?;
        let mut parts = Vec::new();
        for _ in 0..count {
            parts.push((next(self)?, next(self)?));
        }
        Ok(parts)
    }
}
