/// What a `Range` header asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Range {
    /// There is no range, or one in a unit that is not bytes.
    Whole,
    /// From `start` up to but without `end`.
    Part { start: u64, end: u64 },
    /// Nothing of the file, or nothing that can be understood.
    Unsatisfiable,
}

impl Range {
    /// Reads the header for a file of `size` bytes. Of several ranges the first counts.
    pub(super) fn parse(header: &str, size: u64) -> Self {
        let Some(ranges) = header.trim().strip_prefix("bytes=") else { return Self::Whole };
        let first = ranges.split(',').next().unwrap_or(ranges).trim();
        Self::part(first, size).unwrap_or(Self::Unsatisfiable)
    }

    fn part(range: &str, size: u64) -> Option<Self> {
        let (first, last) = range.split_once('-')?;
        let (start, end) = match (first, last) {
            ("", length) => (size.saturating_sub(number(length)?), size),
            (first, "") => (number(first)?, size),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first, (first <= last).then_some(last)?.saturating_add(1).min(size))
            }
        };
        (start < end).then_some(Self::Part { start, end })
    }
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_file() {
        for (header, start, end) in [
            ("bytes=0-9", 0, 10),
            ("bytes=90-200", 90, 100),
            ("bytes=5-", 5, 100),
            ("bytes=-5", 95, 100),
            ("bytes=-500", 0, 100),
            ("bytes=0-0,5-9", 0, 1),
            ("bytes= 1-2", 1, 3),
            ("bytes=0-18446744073709551615", 0, 100),
        ] {
            assert_eq!(Range::parse(header, 100), Range::Part { start, end }, "{header}");
        }
    }

    #[test]
    fn what_is_outside_or_nonsense_is_unsatisfiable() {
        for header in [
            "bytes=100-",
            "bytes=100-101",
            "bytes=-0",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=",
            "bytes=5",
            "bytes=+1-2",
            "bytes=--1",
        ] {
            assert_eq!(Range::parse(header, 100), Range::Unsatisfiable, "{header}");
        }
        assert_eq!(Range::parse("bytes=0-9", 0), Range::Unsatisfiable);
    }

    #[test]
    fn other_units_are_ignored() {
        assert_eq!(Range::parse("lines=1-2", 100), Range::Whole);
    }
}
