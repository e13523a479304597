//! The rules for metadata: those of Kubernetes labels, so that every runtime can carry it.

use std::collections::BTreeMap;

/// Keys under this prefix are ours.
const RESERVED: &str = "opensandbox.io/";

/// Metadata that breaks the label rules; the text says which and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidLabel(String);

/// Checks every key and value of `metadata`.
pub fn check_labels(metadata: &BTreeMap<String, String>) -> Result<(), InvalidLabel> {
    metadata.iter().try_for_each(|(key, value)| {
        check_key(key)?;
        if value.is_empty() || is_name(value) {
            return Ok(());
        }
        Err(InvalidLabel(format!(
            "the value of metadata key {:?} must be at most 63 letters, digits, '-', '_' or '.', \
             and begin and end with a letter or digit",
            excerpt(key)
        )))
    })
}

fn check_key(key: &str) -> Result<(), InvalidLabel> {
    if key.starts_with(RESERVED) {
        return Err(InvalidLabel(format!(
            "metadata key {:?} is reserved: choose one that does not begin with {RESERVED}",
            excerpt(key)
        )));
    }
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if !is_name(name) || !prefix.is_none_or(is_subdomain) {
        return Err(InvalidLabel(format!(
            "metadata key {:?} must be [prefix/]name: a name of at most 63 letters, digits, '-', \
             '_' or '.' that begins and ends with a letter or digit, and a lower-case domain name \
             as prefix",
            excerpt(key)
        )));
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
}

fn is_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        is_name(label)
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, value: &str) -> Result<(), InvalidLabel> {
        check_labels(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn kubernetes_labels_are_accepted() {
        let longest = "a".repeat(63);
        for (key, value) in [
            ("team", "a-team"),
            ("example.com/owner", ""),
            ("A_b.c-9", "x_Y.z"),
            (longest.as_str(), longest.as_str()),
        ] {
            assert_eq!(check(key, value), Ok(()), "{key}={value}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let long = "a".repeat(64);
        for (key, value) in [
            ("", "x"),
            ("-a", "x"),
            ("a/b/c", "x"),
            ("Upper.com/a", "x"),
            ("/a", "x"),
            ("opensandbox.io/id", "x"),
            ("a", "white space"),
            ("a", "-x"),
            ("a", "ü"),
            (long.as_str(), "x"),
            ("a", long.as_str()),
        ] {
            assert!(check(key, value).is_err(), "{key:?}={value:?} was accepted");
        }
    }
}
