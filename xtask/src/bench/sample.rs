use std::time::Duration;

/// Times of the same thing, done many times.
#[derive(Debug, Clone)]
pub(crate) struct Sample(Vec<Duration>);

impl Sample {
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    pub(crate) fn times(self) -> Vec<Duration> {
        self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The time that `percent` of all did not exceed, in milliseconds.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1) - 1;
        self.0.get(rank).map_or(f64::NAN, |time| milliseconds(*time))
    }
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_occurred() {
        let sample = Sample::new((1..=100).rev().map(Duration::from_millis).collect());
        let found: Vec<_> = [1, 50, 99, 100].map(|p| sample.percentile(p).round()).into();
        assert_eq!(found, [1.0, 50.0, 99.0, 100.0]);
        assert!(Sample::new(Vec::new()).percentile(50).is_nan());
    }
}
