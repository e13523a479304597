use std::time::Duration;

use tokio::time::Instant;

/// The least time between two readings that are compared: over less, one tick of the scheduler looks
/// like a busy machine.
const LEAST: Duration = Duration::from_millis(250);

/// Two earlier readings of the processor time, so that there is always one that is old enough to be
/// compared with, however often somebody asks.
#[derive(Debug, Clone)]
pub(super) struct Window {
    earlier: Sample,
    later: Sample,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    used: Duration,
}

impl Window {
    pub(super) fn new(at: Instant, used: Duration) -> Self {
        let start = Sample { at, used };
        Self { earlier: start, later: start }
    }

    /// How many processors were in use since the last reading, or a little longer.
    pub(super) fn share(&mut self, at: Instant, used: Duration) -> f64 {
        if at.duration_since(self.later.at) >= LEAST {
            self.earlier = self.later;
            self.later = Sample { at, used };
        }
        let elapsed = at.duration_since(self.earlier.at);
        if elapsed.is_zero() {
            return 0.0;
        }
        used.saturating_sub(self.earlier.used).as_secs_f64() / elapsed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(amount: u64) -> Duration {
        Duration::from_millis(amount)
    }

    #[test]
    fn readings_are_compared_with_the_last_one_that_is_old_enough() {
        let start = Instant::now();
        let mut window = Window::new(start, ms(100));
        let mut share = |at, used| window.share(start + ms(at), ms(used));
        assert_eq!(share(0, 100).to_string(), "0");
        assert_eq!(share(1000, 600).to_string(), "0.5");
        // Too soon after: over the same second, and what was added.
        assert_eq!(share(1000, 600).to_string(), "0.5");
        assert_eq!(share(2000, 2600).to_string(), "2");
        // A counter that goes back says nothing.
        assert_eq!(share(3000, 5).to_string(), "0");
    }

    proptest! {
        #[test]
        fn a_share_is_never_negative_nor_more_than_was_added(
            steps in prop::collection::vec((0_u64..2000, 0_u64..4000), 1..50),
        ) {
            let start = Instant::now();
            let (mut at, mut used) = (0, 0);
            let mut window = Window::new(start, ms(0));
            for (later, more) in steps {
                at += later;
                used += more.min(later * 2);
                let share = window.share(start + ms(at), ms(used));
                prop_assert!((0.0..2.001).contains(&share), "{}", share);
            }
        }
    }
}
