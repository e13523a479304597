//! Asking again.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use tokio::time::sleep;

use crate::RegistryError;

/// The longest that a registry can make us wait before we ask again.
const LONGEST: Duration = Duration::from_mins(1);
/// How long we wait after the first failure, and after many.
const FIRST: Duration = Duration::from_millis(200);
const LAST: Duration = Duration::from_secs(10);

/// How often something failed in a row.
#[derive(Debug)]
pub(crate) struct Tries {
    failed: u32,
    most: u32,
}

impl Tries {
    pub(crate) fn new(most: u32) -> Self {
        Self { failed: 0, most }
    }

    /// Something came of the last one.
    pub(crate) fn forget(&mut self) {
        self.failed = 0;
    }

    /// Waits for the moment to try again, unless that is no use.
    pub(crate) async fn after(&mut self, error: RegistryError) -> Result<(), RegistryError> {
        self.failed += 1;
        if !error.is_transient() || self.failed >= self.most {
            return Err(error);
        }
        let asked = if let RegistryError::Unavailable { retry_after, .. } = &error {
            *retry_after
        } else {
            None
        };
        let pause = asked.map_or_else(|| backoff(self.failed), |it| it.min(LONGEST));
        tracing::debug!(
            error = %osb_core::Chain(&error),
            pause_ms = pause.as_millis(),
            "asking a registry again"
        );
        sleep(pause).await;
        Ok(())
    }
}

/// Twice as long each time, and up to a half less, so that those who failed together come apart.
fn backoff(failed: u32) -> Duration {
    let whole = FIRST.saturating_mul(1 << (failed - 1).min(8)).min(LAST);
    // Without randomness all wait the same, which is no harm.
    let random = getrandom::u32().unwrap_or_default();
    whole.mul_f64(1.0 - f64::from(random) / f64::from(u32::MAX) / 2.0)
}

/// Whether somebody who answers so may answer otherwise in a while.
pub(crate) fn is_transient(status: StatusCode) -> bool {
    [408, 425, 429, 500, 502, 503, 504].contains(&status.as_u16())
}

/// When to come again, if an answer says so: in seconds, or at a time by the clock of its sender.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let after = text(header::RETRY_AFTER)?.trim();
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let (then, now) = (httpdate::parse_http_date(after).ok()?, text(header::DATE)?);
    then.duration_since(httpdate::parse_http_date(now).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tokio::time::Instant;

    use super::*;
    use crate::said::Said;

    fn unavailable(retry_after: Option<Duration>) -> RegistryError {
        RegistryError::Unavailable {
            host: "r.test".to_owned(),
            doing: "give it".to_owned(),
            status: StatusCode::SERVICE_UNAVAILABLE,
            said: Said::default(),
            retry_after,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_is_longer_until_there_is_no_hope() {
        let mut tries = Tries::new(9);
        let mut waits = Vec::new();
        loop {
            let before = Instant::now();
            if tries.after(unavailable(None)).await.is_err() {
                break;
            }
            waits.push(before.elapsed());
        }
        assert_eq!(waits.len(), 8);
        for (wait, most) in waits.iter().zip([200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]) {
            let most = Duration::from_millis(most);
            assert!(*wait >= most / 2 && *wait <= most + Duration::from_millis(2), "{waits:?}");
        }
        let hopeless = RegistryError::corrupt("r.test", "it lies");
        assert!(Tries::new(9).after(hopeless).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_registry_says_how_long_to_wait_within_bounds() {
        for (asked, waited) in [(2, 2), (100_000, LONGEST.as_secs())] {
            let before = Instant::now();
            Tries::new(2).after(unavailable(Some(Duration::from_secs(asked)))).await.unwrap();
            assert_eq!(before.elapsed().as_secs(), waited);
        }
    }

    #[test]
    fn both_ways_to_name_a_moment_are_understood() {
        let after = |pairs: &[(header::HeaderName, &'static str)]| {
            let pairs = pairs.iter().map(|(name, it)| (name.clone(), HeaderValue::from_static(it)));
            retry_after(&pairs.collect())
        };
        let at = |text| (header::RETRY_AFTER, text);
        let date = (header::DATE, "Wed, 21 Oct 2015 07:28:00 GMT");
        assert_eq!(after(&[at(" 7 ")]), Some(Duration::from_secs(7)));
        let later = at("Wed, 21 Oct 2015 07:28:30 GMT");
        assert_eq!(after(&[later.clone(), date.clone()]), Some(Duration::from_secs(30)));
        assert_eq!(after(&[later]), None);
        for text in ["", "-1", "soon", "1e9", "Wed, 21 Oct 2015 07:27:00 GMT"] {
            assert_eq!(after(&[at(text), date.clone()]), None, "{text}");
        }
    }
}
