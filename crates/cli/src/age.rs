//! How long ago and how long still, in few letters.

use jiff::Timestamp;

/// The distance from `from` to `to` in its largest unit: `5s`, `3m`, `2h`, `4d`.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.as_second().saturating_sub(from.as_second());
    let (sign, seconds) = if seconds < 0 { ("-", -seconds) } else { ("", seconds) };
    let (count, unit) = match seconds {
        0..60 => (seconds, 's'),
        60..3600 => (seconds / 60, 'm'),
        3600..86_400 => (seconds / 3600, 'h'),
        _ => (seconds / 86_400, 'd'),
    };
    format!("{sign}{count}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_unit_is_enough() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (seconds, expected) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (200_000, "2d"), (-90, "-1m")]
        {
            assert_eq!(between(at(0), at(seconds)), expected);
        }
    }
}
