//! Amounts as Kubernetes spells them: `500m`, `2Gi`.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Text that is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct InvalidQuantity {
    text: String,
    expected: &'static str,
}

/// Processor time, in thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cpu(u64);

impl Cpu {
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    pub const fn millis(self) -> u64 {
        self.0
    }
}

impl FromStr for Cpu {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let invalid = || InvalidQuantity {
            text: excerpt(text),
            expected: "an amount of processor such as 2, 0.5 or 500m",
        };
        let (digits, scale) = match text.strip_suffix('m') {
            Some(digits) => (digits, 1),
            None => (text, 1000),
        };
        let millis = scaled(digits, scale).ok_or_else(invalid)?;
        if millis == 0 || millis > 1_000_000_000 { Err(invalid()) } else { Ok(Self(millis)) }
    }
}

/// An amount of memory or disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Memory(u64);

impl Memory {
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Memory {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let invalid = || InvalidQuantity {
            text: excerpt(text),
            expected: "an amount of bytes such as 512Mi, 1.5Gi or 2G",
        };
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (digits, unit) = text.split_at_checked(unit_at).ok_or_else(invalid)?;
        let scale = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" => 1000,
            "ki" => 1 << 10,
            "m" | "mb" => 1_000_000,
            "mi" => 1 << 20,
            "g" | "gb" => 1_000_000_000,
            "gi" => 1 << 30,
            "t" | "tb" => 1_000_000_000_000,
            "ti" => 1 << 40,
            _ => return Err(invalid()),
        };
        let bytes = scaled(digits, scale).ok_or_else(invalid)?;
        if bytes == 0 { Err(invalid()) } else { Ok(Self(bytes)) }
    }
}

/// `digits[.digits]` times `scale`, rounded up, without floating point: `0.1` is exactly `100m`.
fn scaled(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    let fraction = fraction.trim_end_matches('0');
    let mut total = u128::from(whole.checked_mul(scale)?);
    if !fraction.is_empty() {
        let unit = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let part = fraction.parse::<u128>().ok()?.checked_mul(u128::from(scale))?;
        total = total.checked_add(part.div_ceil(unit))?;
    }
    u64::try_from(total).ok().filter(|n| i64::try_from(*n).is_ok())
}

fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_in_thousandths() {
        for (text, millis) in [("1", 1000), ("0.5", 500), ("500m", 500), ("0.1", 100), (".25", 250)]
        {
            assert_eq!(text.parse(), Ok(Cpu(millis)), "{text}");
        }
        for text in ["", "0", "0m", "-1", "1e3", "one", "1 ", "NaN", "inf", "99999999999999", "."] {
            assert!(text.parse::<Cpu>().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn bytes_have_decimal_and_binary_units() {
        for (text, bytes) in [
            ("1024", 1024),
            ("2Gi", 2 << 30),
            ("1.5Gi", 3 << 29),
            ("2G", 2_000_000_000),
            ("64mb", 64_000_000),
            ("1k", 1000),
        ] {
            assert_eq!(text.parse(), Ok(Memory(bytes)), "{text}");
        }
        for text in ["", "0", "Gi", "1 Gi", "2mib", "-1Gi", "9999999Ti", "1..5Gi", "1é"] {
            assert!(text.parse::<Memory>().is_err(), "{text:?} was accepted");
        }
    }
}
