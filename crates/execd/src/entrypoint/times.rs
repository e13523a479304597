//! When what was printed.

/// Times are told apart, at first, if they are so many milliseconds apart.
const APART: i64 = 1000;
/// The most times that are told apart.
const MOST: usize = 1024;

/// Which output came when, roughly.
#[derive(Debug)]
pub(super) struct Times {
    apart: i64,
    stretches: Vec<Stretch>,
}

/// Output that came in a row.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// Where it begins.
    from: u64,
    /// When its first and its last bytes came, in milliseconds since 1970.
    first: i64,
    last: i64,
}

impl Default for Times {
    fn default() -> Self {
        Self { apart: APART, stretches: Vec::new() }
    }
}

impl Times {
    /// Notes that what comes from this offset on comes now.
    pub(super) fn note(&mut self, now: i64, from: u64) {
        match self.stretches.last_mut() {
            // A clock that was set back is no reason to tell more apart.
            Some(last) if now < last.first.saturating_add(self.apart) => {
                last.last = last.last.max(now);
            }
            _ => self.stretches.push(Stretch { from, first: now, last: now }),
        }
        if self.stretches.len() > MOST {
            self.thin();
        }
    }

    /// Where the output begins that came at a time or later; at `end` if none did. What came a little
    /// earlier may be with it.
    pub(super) fn since(&self, time: i64, end: u64) -> u64 {
        let found = self.stretches.iter().find(|stretch| stretch.last >= time);
        found.map_or(end, |stretch| stretch.from)
    }

    /// Makes one of every two, and tells half as much apart from now on.
    fn thin(&mut self) {
        let join = |pair: &[Stretch]| {
            let first = pair.first()?;
            Some(Stretch { last: pair.last()?.last, ..*first })
        };
        self.stretches = self.stretches.chunks(2).filter_map(join).collect();
        self.apart = self.apart.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_found_by_its_age() {
        let mut times = Times::default();
        for (now, from) in [(10_000, 0), (10_500, 7), (60_000, 20)] {
            times.note(now, from);
        }
        for (time, from) in [(0, 0), (10_500, 0), (10_501, 20), (60_000, 20), (60_001, 30)] {
            assert_eq!(times.since(time, 30), from, "since {time}");
        }
        assert_eq!(Times::default().since(0, 0), 0);
    }

    #[test]
    fn however_long_it_prints_the_times_are_few() {
        let mut times = Times::default();
        for second in 0..100_000 {
            times.note(second * 1000, u64::try_from(second).unwrap());
        }
        assert!(times.stretches.len() <= MOST);
        let from = times.since(50_000_000, 0);
        assert!((49_000..=50_000).contains(&from), "from {from}");
    }
}
