use std::time::{Duration, Instant};

/// How many lines about one thing a sandbox may have written down: so many at once, and so many a
/// second.
#[derive(Debug)]
pub(crate) struct Share {
    left: f64,
    since: Instant,
    /// How many wait to be written.
    pub(crate) waiting: usize,
    /// How many were not, and nobody was told yet.
    pub(crate) missed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    No,
}

impl Share {
    const BURST: f64 = 2000.0;
    const RATE: f64 = 5.0;
    /// A disk that is slow does not fill the memory.
    const WAITING: usize = 512;

    pub(crate) fn new(now: Instant) -> Self {
        Self { left: Self::BURST, since: now, waiting: 0, missed: 0 }
    }

    /// Takes a line, or counts it as missed.
    pub(crate) fn take(&mut self, now: Instant) -> Taken {
        let passed = now.saturating_duration_since(self.since);
        self.left = (self.left + passed.as_secs_f64() * Self::RATE).min(Self::BURST);
        self.since = now;
        if self.left < 1.0 || self.waiting >= Self::WAITING {
            self.missed += 1;
            return Taken::No;
        }
        self.left -= 1.0;
        self.waiting += 1;
        Taken::Yes
    }

    /// Whether it is as if nothing had ever been taken from it.
    pub(crate) fn is_whole(&self, now: Instant) -> bool {
        let missing = Duration::from_secs_f64((Self::BURST - self.left) / Self::RATE);
        self.missed == 0 && now.saturating_duration_since(self.since) >= missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(share: &mut Share, now: Instant, times: usize) -> usize {
        let taken = (0..times).filter(|_| share.take(now) == Taken::Yes).count();
        share.waiting = 0;
        taken
    }

    #[test]
    fn what_is_too_much_is_counted_and_comes_back_with_time() {
        let start = Instant::now();
        let mut share = Share::new(start);
        assert!(share.is_whole(start));
        let taken: usize = (0..10).map(|_| take(&mut share, start, 300)).sum();
        assert_eq!((taken, share.missed), (2000, 1000));
        let later = start + Duration::from_secs(2);
        assert_eq!(take(&mut share, later, 100), 10);
        share.missed = 0;
        assert!(!share.is_whole(later));
        assert!(share.is_whole(later + Duration::from_secs(400)));
    }

    #[test]
    fn what_is_not_written_soon_enough_is_counted() {
        let start = Instant::now();
        let mut share = Share::new(start);
        assert_eq!((take(&mut share, start, 600), share.missed), (512, 88));
        assert_eq!((take(&mut share, start, 600), share.missed), (512, 176));
    }
}
