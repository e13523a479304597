use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How many bytes are looked at without a rest: a thousandth of a second of work, or a few.
const TURN: usize = 256 << 10;

/// Lets a talker have some hundred megabytes in each second, and all else half of the time.
const REST: Duration = Duration::from_millis(1);

/// How long somebody is listened to who may never stop, while somebody waits for what comes. All
/// that this program does shares one thread, its clocks as well.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    spent: usize,
    until: Option<Instant>,
}

impl Turn {
    /// Notes work.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.spent = self.spent.saturating_add(bytes);
    }

    /// Rests if it is time. Whoever stops waiting for that has to wait for the rest of it later.
    pub(crate) async fn rest(&mut self) {
        if self.spent >= TURN {
            self.spent = 0;
            self.until = Some(Instant::now() + REST);
        }
        if let Some(until) = self.until {
            sleep_until(until).await;
            self.until = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rest_is_due_after_much_work_and_cannot_be_skipped() {
        let mut turn = Turn::default();
        turn.spend(TURN - 1);
        assert!(turn.rest().now_or_never().is_some());
        turn.spend(1);
        assert!(turn.rest().now_or_never().is_none());
        assert!(turn.rest().now_or_never().is_none());
        turn.rest().await;
        assert!(turn.rest().now_or_never().is_some());
    }
}
