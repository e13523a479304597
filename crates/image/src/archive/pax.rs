//! Descriptions of entries as pax writes them: records of a length, a key and a value.

use osb_sys::unpack::Moment;

use super::{ArchiveError, Entry, sparse::Told};

const MALFORMED: ArchiveError = ArchiveError::Malformed("an entry is described wrongly");

/// In the order in which they were written.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<(Vec<u8>, Vec<u8>)>);

impl Records {
    /// Each is its own length in decimal, a blank, the key, `=`, the value, and a newline. Values may
    /// have newlines too.
    pub(super) fn parse(mut text: &[u8]) -> Result<Self, ArchiveError> {
        let mut records = Vec::new();
        while !text.is_empty() {
            let blank = text.iter().take(20).position(|byte| *byte == b' ').ok_or(MALFORMED)?;
            let digits = text.get(..blank).unwrap_or_default();
            let length =
                usize::try_from(decimal(digits).ok_or(MALFORMED)?).map_err(|_| MALFORMED)?;
            let record = text.get(blank + 1..length).ok_or(MALFORMED)?;
            let (newline, record) = record.split_last().ok_or(MALFORMED)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(MALFORMED)?;
            let (key, value) = record.split_at(equals);
            if *newline != b'\n' || key.is_empty() {
                return Err(MALFORMED);
            }
            records.push((key.to_vec(), value.get(1..).unwrap_or_default().to_vec()));
            text = text.get(length..).unwrap_or_default();
        }
        Ok(Self(records))
    }

    /// Writes what they say into the entry. Answers with what they tell about holes.
    pub(super) fn apply(self, entry: &mut Entry) -> Result<Told, ArchiveError> {
        let mut told = Told::default();
        for (key, value) in self.0 {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                entry.extended.push((name.to_vec(), value));
                continue;
            }
            // Nothing says that the block's own word counts.
            if value.is_empty() {
                continue;
            }
            match key.as_slice() {
                b"path" => entry.path = without_zero(value)?,
                b"linkpath" => entry.link = without_zero(value)?,
                b"size" => entry.size = decimal(&value).ok_or(MALFORMED)?,
                b"uid" => entry.user = decimal(&value).and_then(|id| u32::try_from(id).ok()),
                b"gid" => entry.group = decimal(&value).and_then(|id| u32::try_from(id).ok()),
                b"mtime" => entry.modified = moment(&value).ok_or(MALFORMED)?,
                _ => {
                    if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                        told.hear(key, value)?;
                    }
                }
            }
        }
        told.name(entry);
        Ok(told)
    }
}

fn without_zero(value: Vec<u8>) -> Result<Vec<u8>, ArchiveError> {
    if value.contains(&0) { Err(MALFORMED) } else { Ok(value) }
}

pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(number).filter(|number| *number <= i64::MAX.cast_unsigned())
}

/// Seconds with a sign and a fraction, of which nine digits count.
fn moment(text: &[u8]) -> Option<Moment> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let seconds = i64::try_from(decimal(parts.next()?)?).ok()?;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    let nanoseconds = digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    Some(match (negative, nanoseconds) {
        (false, _) => Moment { seconds, nanoseconds },
        (true, 0) => Moment { seconds: -seconds, nanoseconds },
        // What comes after the dot counts backwards too.
        (true, _) => Moment { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        Records::parse(text).ok().map(|records| records.0)
    }

    #[test]
    fn values_may_have_any_byte() {
        let text = b"12 path=a\nb\n11 key=x=y\n";
        let found = records(text).unwrap();
        assert_eq!(found[0], (b"path".to_vec(), b"a\nb".to_vec()));
        assert_eq!(found[1], (b"key".to_vec(), b"x=y".to_vec()));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let wrong: [&[u8]; 9] = [
            b"path=a\n",
            b"99 path=a\n",
            b"8 path=a\n",
            b"10 path=ab",
            b"7 =abc\n",
            b"6 abc\n",
            b"0 path=a\n",
            b"-1 path=a\n",
            b"18446744073709551616 a=b\n",
        ];
        for text in wrong {
            assert_eq!(records(text), None, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn times_have_nine_digits_after_the_dot_on_either_side_of_zero() {
        let at = |seconds, nanoseconds| Some(Moment { seconds, nanoseconds });
        assert_eq!(moment(b"1.5"), at(1, 500_000_000));
        assert_eq!(moment(b"1.0000000019"), at(1, 1));
        assert_eq!(moment(b"-1.5"), at(-2, 500_000_000));
        assert_eq!(moment(b"-3"), at(-3, 0));
        assert_eq!(moment(b"9223372036854775807"), at(i64::MAX, 0));
        for wrong in [&b"9223372036854775808"[..], b"", b"-", b"1.x", b"1e9", b"--1"] {
            assert_eq!(moment(wrong), None);
        }
    }
}
