use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::error::ApiError;

/// The pairs of a query or form, decoded, in order.
pub(crate) fn pairs(text: &str) -> impl Iterator<Item = (String, Option<String>)> + '_ {
    text.split('&').filter(|segment| !segment.is_empty()).map(|segment| {
        match segment.split_once('=') {
            Some((key, value)) => (decode(key), Some(decode(value))),
            None => (decode(segment), None),
        }
    })
}

fn decode(text: &str) -> String {
    let spaced = if text.contains('+') { Cow::Owned(text.replace('+', " ")) } else { text.into() };
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

/// A whole number from `min` to `max`.
pub(crate) fn number(name: &str, text: &str, min: u64, max: u64) -> Result<u64, ApiError> {
    text.trim().parse().ok().filter(|number| (min..=max).contains(number)).ok_or_else(|| {
        ApiError::invalid(format!("{name} must be a whole number of {min} to {max}"))
    })
}

/// Yes or no, in the words that published servers take.
pub(crate) fn switch(name: &str, text: &str) -> Result<bool, ApiError> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" | "t" | "y" => Ok(true),
        "false" | "0" | "no" | "off" | "f" | "n" => Ok(false),
        _ => Err(ApiError::invalid(format!("{name} must be true or false"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let all: Vec<_> = pairs("a=1&b=x%20y+z&c&&d=&a=%3D").collect();
        let expected = [("a", Some("1")), ("b", Some("x y z")), ("c", None), ("d", Some(""))];
        let expected = expected.into_iter().chain([("a", Some("="))]);
        let expected: Vec<_> =
            expected.map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn numbers_stay_in_their_range() {
        assert_eq!(number("page", "7", 1, 10).expect("a number"), 7);
        for text in ["", "0", "11", "-1", "1.5", "x", "99999999999999999999"] {
            assert!(number("page", text, 1, 10).is_err(), "{text:?} was accepted");
        }
    }
}
