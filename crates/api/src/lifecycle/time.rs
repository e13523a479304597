use std::{fmt, str::FromStr};

use jiff::{SignedDuration, Timestamp, civil, tz::TimeZone};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Numbers beyond this are milliseconds: as seconds they would lie past the year 2600.
const MILLISECONDS_FROM: i64 = 20_000_000_000;

/// A moment on the wire.
///
/// Written as RFC 3339 in UTC with `Z` and at most microseconds. Read from RFC 3339 with any
/// offset, from the same without an offset (then it is UTC), and from unix seconds or milliseconds
/// as a number or as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "schema",
    derive(utoipa::ToSchema),
    schema(value_type = String, format = DateTime)
)]
pub struct Time(pub Timestamp);

/// Text or a number that names no moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a time: write it as 2030-01-31T12:00:00Z")]
pub struct InvalidTime {
    text: String,
}

impl InvalidTime {
    fn new(text: impl fmt::Display) -> Self {
        Self { text: text.to_string().chars().take(64).collect() }
    }
}

impl Time {
    fn from_unix(number: i64) -> Option<Self> {
        let milliseconds = number.unsigned_abs() >= MILLISECONDS_FROM.unsigned_abs();
        let moment = if milliseconds {
            Timestamp::from_millisecond(number)
        } else {
            Timestamp::from_second(number)
        };
        moment.ok().map(Self)
    }

    fn from_unix_fraction(number: f64) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "the limit is far below 2^53")]
        let seconds =
            if number.abs() >= MILLISECONDS_FROM as f64 { number / 1000.0 } else { number };
        let since = SignedDuration::try_from_secs_f64(seconds).ok()?;
        Timestamp::UNIX_EPOCH.checked_add(since).ok().map(Self)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = Timestamp::from_microsecond(self.0.as_microsecond()).unwrap_or(self.0);
        fmt::Display::fmt(&micros, f)
    }
}

impl FromStr for Time {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        let text = text.trim();
        if let Ok(moment) = text.parse() {
            return Ok(Self(moment));
        }
        if let Ok(number) = text.parse::<i64>() {
            return Self::from_unix(number).ok_or_else(|| InvalidTime::new(text));
        }
        if let Ok(number) = text.parse::<f64>() {
            return Self::from_unix_fraction(number).ok_or_else(|| InvalidTime::new(text));
        }
        let naive: civil::DateTime = text.parse().map_err(|_| InvalidTime::new(text))?;
        let zoned = naive.to_zoned(TimeZone::UTC).map_err(|_| InvalidTime::new(text))?;
        Ok(Self(zoned.timestamp()))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor)
    }
}

struct TimeVisitor;

impl de::Visitor<'_> for TimeVisitor {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as \"2030-01-31T12:00:00Z\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Time, E> {
        Time::from_unix(number).ok_or_else(|| E::custom(InvalidTime::new(number)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Time, E> {
        i64::try_from(number)
            .ok()
            .and_then(Time::from_unix)
            .ok_or_else(|| E::custom(InvalidTime::new(number)))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Time, E> {
        Time::from_unix_fraction(number).ok_or_else(|| E::custom(InvalidTime::new(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_moment_is_read() {
        for spelling in [
            r#""2026-11-15T18:26:29.364171Z""#,
            r#""2026-11-15T18:26:29.364171+00:00""#,
            r#""2026-11-15T20:26:29.364171+02:00""#,
            r#""2026-11-15T18:26:29.364171""#,
            r#""2026-11-15 18:26:29.364171""#,
        ] {
            let time: Time = serde_json::from_str(spelling).expect(spelling);
            assert_eq!(time.to_string(), "2026-11-15T18:26:29.364171Z", "{spelling}");
        }
        for spelling in ["1794767189", "1794767189000", r#""1794767189""#, r#""1794767189000""#] {
            let time: Time = serde_json::from_str(spelling).expect(spelling);
            assert_eq!(time.to_string(), "2026-11-15T18:26:29Z", "{spelling}");
        }
        let half: Time = serde_json::from_str("1794767189.5").expect("half a second");
        assert_eq!(half.to_string(), "2026-11-15T18:26:29.5Z");
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [r#""""#, r#""tomorrow""#, "null", "true", "[]", "1e300", r#""NaN""#, "-1e18"] {
            assert!(serde_json::from_str::<Time>(text).is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn nothing_finer_than_microseconds_is_written() {
        let time = Time("2026-11-15T18:26:29.123456789Z".parse().expect("a timestamp"));
        assert_eq!(time.to_string(), "2026-11-15T18:26:29.123456Z");
    }
}
