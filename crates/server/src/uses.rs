use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

use jiff::{SignedDuration, Timestamp};
use osb_core::{Clock, LastUse};

/// Who uses a sandbox, and when somebody did last. All versions of a record share it, and it lives in
/// memory only: requests must not wait for a disk to say that they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uses(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// How many requests are in progress.
    now: AtomicUsize,
    /// When the last one ended, in microseconds since 1970.
    last: AtomicI64,
    /// When one put the expiry off, likewise.
    renewed: AtomicI64,
}

impl Uses {
    pub(crate) fn last(&self) -> LastUse {
        if self.0.now.load(Ordering::SeqCst) > 0 {
            return LastUse::Now;
        }
        let last = Timestamp::from_microsecond(self.0.last.load(Ordering::SeqCst));
        LastUse::At(last.unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// Notes that somebody uses it until the result is dropped.
    pub(crate) fn begin(&self, clock: &Arc<dyn Clock>) -> InUse {
        self.0.now.fetch_add(1, Ordering::SeqCst);
        InUse { counts: Arc::clone(&self.0), clock: Arc::clone(clock) }
    }

    /// Notes that it was used at this moment.
    pub(crate) fn note(&self, at: Timestamp) {
        self.0.last.fetch_max(at.as_microsecond(), Ordering::SeqCst);
    }

    /// Whether the expiry may be put off: of all that ask within an interval, one is told so.
    pub(crate) fn may_renew(&self, now: Timestamp, interval: SignedDuration) -> bool {
        let before = self.0.renewed.load(Ordering::Relaxed);
        let now = now.as_microsecond();
        let is_due = i128::from(now) - i128::from(before) >= interval.as_micros();
        let orders = (Ordering::Relaxed, Ordering::Relaxed);
        is_due && self.0.renewed.compare_exchange(before, now, orders.0, orders.1).is_ok()
    }
}

/// Records are the same whoever uses their sandboxes.
impl PartialEq for Uses {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Uses {}

/// A request in progress.
pub(crate) struct InUse {
    counts: Arc<Counts>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InUse").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.counts.last.fetch_max(self.clock.now().as_microsecond(), Ordering::SeqCst);
        self.counts.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use osb_core::testkit::TestClock;

    use super::*;

    #[test]
    fn a_use_lasts_as_long_as_its_longest_request() {
        let clock = TestClock::default();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let uses = Uses::default();
        assert_eq!(uses.last(), LastUse::At(Timestamp::UNIX_EPOCH));
        let (first, second) = (uses.begin(&shared), uses.clone().begin(&shared));
        drop(first);
        assert_eq!(uses.last(), LastUse::Now);
        clock.advance(Duration::from_secs(5));
        drop(second);
        assert_eq!(uses.last(), LastUse::At(clock.now()));
        uses.note(Timestamp::UNIX_EPOCH);
        assert_eq!(uses.last(), LastUse::At(clock.now()), "what is older changes nothing");
    }

    #[test]
    fn one_request_of_an_interval_may_renew() {
        let uses = Uses::default();
        let (start, interval) = (TestClock::default().now(), SignedDuration::from_secs(60));
        let at = |seconds| start + SignedDuration::from_secs(seconds);
        let due: Vec<_> =
            (0..=120).filter(|second| uses.may_renew(at(*second), interval)).collect();
        assert_eq!(due, [0, 60, 120]);
    }
}
