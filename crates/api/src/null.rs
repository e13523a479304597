//! Explicit nulls in requests: some clients write every key they know.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the default.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads `null` as true, for switches that are on unless turned off.
pub(crate) fn or_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(true))
}

pub(crate) fn yes() -> bool {
    true
}
