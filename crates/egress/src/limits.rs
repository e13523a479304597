use std::{
    sync::{Mutex, MutexGuard, PoisonError},
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

    /// Waits until so much can be taken, and takes it.
    pub(crate) async fn wait(&self, amount: f64) {
        while let Err(wait) = self.take(amount) {
            tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
