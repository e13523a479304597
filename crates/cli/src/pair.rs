//! `KEY=VALUE` arguments.

use std::{collections::BTreeMap, str::FromStr};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    key: String,
    value: String,
}

/// Text without a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it should look like KEY=VALUE")]
pub(crate) struct InvalidPair;

impl FromStr for Pair {
    type Err = InvalidPair;

    fn from_str(text: &str) -> Result<Self, InvalidPair> {
        let (key, value) = text.split_once('=').ok_or(InvalidPair)?;
        if key.is_empty() {
            return Err(InvalidPair);
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

/// The pairs as a map; a key that comes twice keeps its last value.
pub(crate) fn to_map(pairs: &[Pair]) -> BTreeMap<String, String> {
    pairs.iter().map(|pair| (pair.key.clone(), pair.value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_equals_sign_separates() {
        let pair: Pair = "URL=http://x/?a=b".parse().unwrap();
        assert_eq!((pair.key.as_str(), pair.value.as_str()), ("URL", "http://x/?a=b"));
        assert!("EMPTY=".parse::<Pair>().is_ok());
        assert_eq!("=x".parse::<Pair>(), Err(InvalidPair));
        assert_eq!("x".parse::<Pair>(), Err(InvalidPair));
    }
}
