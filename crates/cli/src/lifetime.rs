//! Lengths of time as people type them.

use std::{str::FromStr, time::Duration};

/// A length of time such as `90s`, `10m` or `1h30m`; a bare number counts seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime(Duration);

/// Text that is not a length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it should look like 90s, 10m, 1h30m or 600 (seconds)")]
pub(crate) struct InvalidLifetime;

impl Lifetime {
    pub(crate) fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Lifetime {
    type Err = InvalidLifetime;

    fn from_str(text: &str) -> Result<Self, InvalidLifetime> {
        if let Ok(seconds) = text.parse::<u32>() {
            return positive(u64::from(seconds));
        }
        let mut total = 0_u64;
        let mut digits = String::new();
        for c in text.chars() {
            if c.is_ascii_digit() {
                digits.push(c);
                continue;
            }
            let unit = match c {
                's' => 1,
                'm' => 60,
                'h' => 60 * 60,
                'd' => 24 * 60 * 60,
                _ => return Err(InvalidLifetime),
            };
            let count = digits.parse::<u32>().map_err(|_| InvalidLifetime)?;
            digits.clear();
            total = u64::from(count)
                .checked_mul(unit)
                .and_then(|part| total.checked_add(part))
                .ok_or(InvalidLifetime)?;
        }
        if digits.is_empty() { positive(total) } else { Err(InvalidLifetime) }
    }
}

/// No length of time that anybody waits for is zero or longer than ten years.
fn positive(seconds: u64) -> Result<Lifetime, InvalidLifetime> {
    if (1..=10 * 365 * 24 * 60 * 60).contains(&seconds) {
        Ok(Lifetime(Duration::from_secs(seconds)))
    } else {
        Err(InvalidLifetime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_units() {
        for (text, seconds) in
            [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("1m1s", 61)]
        {
            assert_eq!(text.parse(), Ok(Lifetime(Duration::from_secs(seconds))), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "0", "0s", "m", "10x", "1.5h", "-1", "1h30", "99999999999s", "4000d"] {
            assert_eq!(text.parse::<Lifetime>(), Err(InvalidLifetime), "{text:?}");
        }
    }
}
