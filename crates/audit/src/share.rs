use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

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
    /// What there were lines about.
    known: HashSet<u64>,
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
    /// About how much there may be a line although all of them are used up.
    const KNOWN: usize = 256;

    pub(crate) fn new(now: Instant) -> Self {
        Self { left: Self::BURST, since: now, waiting: 0, missed: 0, known: HashSet::new() }
    }

    /// Takes a line, or counts it as missed.
    pub(crate) fn take(&mut self, now: Instant, about: u64) -> Taken {
        let passed = now.saturating_duration_since(self.since);
        self.left = (self.left + passed.as_secs_f64() * Self::RATE).min(Self::BURST);
        self.since = now;
        let is_first = self.known.len() < Self::KNOWN && self.known.insert(about);
        let is_in_reach = self.left >= 1.0 && self.waiting < Self::WAITING;
        if !is_in_reach && !is_first {
            self.missed += 1;
            return Taken::No;
        }
        if is_in_reach {
            self.left -= 1.0;
        }
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
        let taken = (0..times).filter(|_| share.take(now, 0) == Taken::Yes).count();
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
    fn the_first_about_something_is_written_although_there_is_much_about_something_else() {
        let start = Instant::now();
        let mut share = Share::new(start);
        take(&mut share, start, 600);
        let taken = [1, 1, 2].map(|about| share.take(start, about));
        assert_eq!(taken, [Taken::Yes, Taken::Yes, Taken::Yes]);
        while share.take(start, 0) == Taken::Yes {}
        let taken = [1, 3, 3].map(|about| share.take(start, about));
        assert_eq!(taken, [Taken::No, Taken::Yes, Taken::No]);
        let firsts = (4..1000).filter(|about| share.take(start, *about) == Taken::Yes).count();
        assert_eq!(firsts, Share::KNOWN - 4);
    }

    #[test]
    fn what_is_not_written_soon_enough_is_counted() {
        let start = Instant::now();
        let mut share = Share::new(start);
        assert_eq!((take(&mut share, start, 600), share.missed), (512, 88));
        assert_eq!((take(&mut share, start, 600), share.missed), (512, 176));
    }
}
