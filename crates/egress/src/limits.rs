use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Something that comes back with time: so many a second, and so many at once after a rest.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: f64,
    burst: f64,
    level: Mutex<(f64, Instant)>,
}

impl Bucket {
    pub(crate) fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, level: Mutex::new((burst, Instant::now())) }
    }

    /// Takes so much, or says how long it takes until it could be taken.
    ///
    /// More than fits at once is lent: it is given when the bucket is full, and paid for later.
    pub(crate) fn take(&self, amount: f64) -> Result<(), Duration> {
        let mut held = self.filled();
        let missing = amount.min(self.burst) - held.0;
        if missing > 0.0 {
            return Err(Duration::from_secs_f64(missing / self.rate));
        }
        held.0 -= amount;
        Ok(())
    }

    /// Takes so much in any case, and says how long it takes until it is paid for.
    pub(crate) fn spend(&self, amount: f64) -> Option<Duration> {
        let mut held = self.filled();
        held.0 -= amount;
        (held.0 < 0.0).then(|| Duration::from_secs_f64(-held.0 / self.rate))
    }

    /// How much there is now.
    fn filled(&self) -> MutexGuard<'_, (f64, Instant)> {
        let mut held = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let (level, filled) = &mut *held;
        let now = Instant::now();
        *level = (*level + (now - *filled).as_secs_f64() * self.rate).min(self.burst);
        *filled = now;
        held
    }

    /// Takes so much, and waits until it is paid for: however many wait, each wakes once.
    pub(crate) async fn wait(&self, amount: f64) {
        if let Some(wait) = self.spend(amount) {
            tokio::time::sleep(wait).await;
        }
    }
}

/// The moments at which those go on who rest, many at once: to be woken for one after the other costs
/// several times as much, of the processors and of everybody else who waits for them.
#[derive(Debug)]
pub(crate) struct Turns(Instant);

impl Turns {
    /// As many fit into a second.
    const EVERY: Duration = Duration::from_millis(20);

    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// How long it is until the next one, for somebody who rests for at least so long.
    pub(crate) fn after(&self, rest: Duration) -> Duration {
        let rested = self.0.elapsed() + rest;
        let missed = rested.subsec_nanos() % Self::EVERY.subsec_nanos();
        rest + Duration::from_nanos((Self::EVERY.subsec_nanos() - missed).into())
    }
}

/// What all sandboxes together may have of something. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    free: Arc<AtomicUsize>,
    all: usize,
}

/// One of the [`Places`], which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Places {
    pub(crate) fn new(all: usize) -> Self {
        Self { free: Arc::new(AtomicUsize::new(all)), all }
    }

    /// A place for somebody who has so many. Nobody has more than he leaves to others: however few
    /// there are, there are some for the next.
    pub(crate) fn take(&self, has: usize) -> Option<Place> {
        let take = |free: usize| if has < free { free.checked_sub(1) } else { None };
        self.free.fetch_update(Relaxed, Relaxed, take).ok()?;
        Some(Place(self.free.clone()))
    }

    /// A place for what works without one, only less well: nobody has it who might need it.
    pub(crate) fn spare(&self) -> Option<Place> {
        self.take(self.all / 2)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_much_somebody_takes_others_find_a_place() {
        let places = Places::new(100);
        let take_all = || {
            let mut taken: Vec<Place> = Vec::new();
            while let Some(place) = places.take(taken.len()) {
                taken.push(place);
            }
            taken
        };
        let first = take_all();
        assert!(places.spare().is_none());
        let others = [take_all(), take_all(), take_all()];
        assert_eq!(first.len(), 50);
        assert_eq!(others.each_ref().map(Vec::len), [25, 13, 6]);
        drop((first, others));
        assert!(places.spare().is_some());
        assert_eq!(take_all().len(), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_taken_comes_back_with_time() {
        let bucket = Bucket::new(10.0, 2.0);
        assert_eq!([bucket.take(1.0), bucket.take(1.0)], [Ok(()), Ok(())]);
        let wait = bucket.take(1.0).unwrap_err();
        assert!(wait > Duration::from_millis(50), "{wait:?}");
        tokio::time::advance(wait).await;
        assert_eq!(bucket.take(1.0), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_fits_is_paid_for_later() {
        let bucket = Bucket::new(10.0, 2.0);
        assert_eq!(bucket.take(12.0), Ok(()));
        let before = Instant::now();
        bucket.wait(1.0).await;
        assert!(before.elapsed() > Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_rest_go_on_at_the_same_moment() {
        let turns = Turns::new();
        let mut ends = Vec::new();
        for rest in [19, 12, 7, 3] {
            let rest = Duration::from_millis(rest);
            let end = turns.after(rest);
            assert!(rest < end && end <= rest + Turns::EVERY);
            ends.push(Instant::now() + end);
            tokio::time::advance(Duration::from_millis(3)).await;
        }
        assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_spent_is_paid_for_whole() {
        let bucket = Bucket::new(10.0, 2.0);
        let before = Instant::now();
        for _ in 0..10 {
            if let Some(rest) = bucket.spend(5.0) {
                tokio::time::sleep(rest).await;
            }
        }
        let took = before.elapsed();
        assert!(took >= Duration::from_millis(4750), "50 at 10 a second took {took:?}");
    }
}
