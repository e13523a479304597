use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

use crate::Clock;

/// A clock that stands still until a test moves it. Clones show the same time.
#[derive(Debug, Clone)]
pub struct TestClock(Arc<Mutex<Timestamp>>);

impl TestClock {
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(now)))
    }

    pub fn set(&self, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.saturating_add(by).unwrap_or(Timestamp::MAX);
    }
}

impl Default for TestClock {
    /// A moment in 2026, so that printed times look like times.
    fn default() -> Self {
        Self::at(Timestamp::constant(1_767_225_600, 0))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_only_when_told() {
        let clock = TestClock::default();
        let start = clock.now();
        assert_eq!(clock.now(), start);
        clock.clone().advance(Duration::from_mins(1));
        assert_eq!(clock.now().as_second() - start.as_second(), 60);
    }
}
