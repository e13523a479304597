//! How long the stages of starting sandboxes take, for those who watch the server.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use osb_core::StageTimes;
use tokio::time::Instant;

/// Counts are kept of what took at most so many microseconds.
const BOUNDS: [u64; 13] = [
    250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 500_000, 2_000_000,
    10_000_000,
];

#[derive(Debug, Default)]
pub(super) struct Stages {
    /// Directory, control group, sockets, instructions and volumes are made.
    pub(super) prepare: Times,
    /// The spawner hears of it and forks.
    pub(super) spawn: Times,
    /// The new process builds its root, gives up its powers and becomes execd.
    pub(super) start: Times,
    /// One that was started before is given its purpose.
    pub(super) claim: Times,
}

/// How long one of them took, each time that it succeeded.
#[derive(Debug, Default)]
pub(super) struct Times {
    within: [AtomicU64; BOUNDS.len()],
    slower: AtomicU64,
    micros: AtomicU64,
}

impl Times {
    /// Counts one that began then and ends now. Answers with now.
    pub(super) fn count(&self, began: Instant) -> Instant {
        let now = Instant::now();
        self.add(now.saturating_duration_since(began));
        now
    }

    fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut slots = BOUNDS.iter().zip(&self.within);
        let slot =
            slots.find(|(bound, _)| micros <= **bound).map_or(&self.slower, |(_, slot)| slot);
        slot.fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
    }

    fn tell(&self, stage: &'static str) -> StageTimes {
        let slots = BOUNDS.iter().zip(&self.within);
        StageTimes {
            stage,
            within: slots
                .map(|(bound, slot)| (Duration::from_micros(*bound), slot.load(Relaxed)))
                .collect(),
            slower: self.slower.load(Relaxed),
            total: Duration::from_micros(self.micros.load(Relaxed)),
        }
    }
}

impl Stages {
    pub(super) fn tell(&self) -> Vec<StageTimes> {
        vec![
            self.prepare.tell("prepare"),
            self.spawn.tell("spawn"),
            self.start.tell("start"),
            self.claim.tell("claim"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_counted_once_where_it_belongs() {
        let times = Times::default();
        for micros in [0, 250, 251, 10_000_001] {
            times.add(Duration::from_micros(micros));
        }
        let told = times.tell("spawn");
        let counts: Vec<_> = told.within.iter().map(|(_, count)| *count).collect();
        assert_eq!(&counts[..3], [2, 1, 0]);
        assert_eq!((counts.iter().sum::<u64>(), told.slower), (3, 1));
        assert_eq!(told.total, Duration::from_micros(10_000_502));
    }
}
