//! Durations as Go writes them, which is how published deployments set them: `1s`, `1m30s`, `200ms`.

use std::time::Duration;

/// More than any wait here makes sense for.
const MOST: Duration = Duration::from_hours(24 * 365);

const UNITS: [(&str, f64); 8] = [
    // Longest names first: `ms` is not `m`.
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    seconds(text)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|duration| *duration <= MOST)
        .ok_or_else(|| {
            "expected a time of at most a year such as 200ms, 1.5s or 1m30s, with its unit"
                .to_owned()
        })
}

fn seconds(text: &str) -> Option<f64> {
    if text == "0" {
        return Some(0.0);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let (unit, scale) = UNITS.into_iter().find(|(unit, _)| after.starts_with(unit))?;
        sum += number.parse::<f64>().ok()? * scale;
        rest = after.strip_prefix(unit)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_numbers_with_units() {
        let cases = [
            ("0", 0),
            ("1s", 1000),
            ("200ms", 200),
            ("1.5s", 1500),
            ("1m30s", 90_000),
            ("+2h", 7_200_000),
            (".5s", 500),
            ("1000µs", 1),
        ];
        for (text, ms) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "1", "s", "-1s", "1 s", "1d", "1..5s", "1s2", "1e3s", "9999999h", "NaNs"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_more_than_a_year_or_breaks_it(text in "[0-9.smhnu+µ-]{0,20}") {
            if let Ok(duration) = parse(&text) {
                prop_assert!(duration <= MOST);
            }
        }

        #[test]
        fn whole_milliseconds_are_exact(ms in 0_u64..1_000_000_000) {
            prop_assert_eq!(parse(&format!("{ms}ms")).unwrap().as_millis(), u128::from(ms));
        }
    }
}
