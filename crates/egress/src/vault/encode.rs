//! How a secret is written in the places where it can stand.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::zeroize::Zeroizing;

/// Text that is wiped when it goes.
pub(super) type Wiped = Zeroizing<Vec<u8>>;

/// Everything but what no place gives a meaning to: RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What forms encode: all but this set and the space, which becomes a plus.
const IN_FORMS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*').remove(b' ');

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Raw,
    /// In a path or a query.
    Percent,
    /// In `application/x-www-form-urlencoded`.
    Form,
    /// Inside a JSON string.
    Json,
}

impl Encoding {
    pub(super) fn apply(self, secret: &str) -> Wiped {
        match self {
            Self::Raw => Zeroizing::new(secret.as_bytes().to_vec()),
            Self::Percent => collect(secret.len() * 3, utf8_percent_encode(secret, RESERVED)),
            Self::Form => {
                let mut text = collect(secret.len() * 3, utf8_percent_encode(secret, IN_FORMS));
                for byte in text.iter_mut().filter(|byte| **byte == b' ') {
                    *byte = b'+';
                }
                text
            }
            Self::Json => json(secret),
        }
    }
}

/// With room for all of it from the beginning, so that no part is left behind by growing.
fn collect<'a>(room: usize, parts: impl Iterator<Item = &'a str>) -> Wiped {
    let mut text = Zeroizing::new(Vec::with_capacity(room));
    for part in parts {
        text.extend_from_slice(part.as_bytes());
    }
    text
}

fn json(secret: &str) -> Wiped {
    // A character becomes six at most.
    let mut text = Zeroizing::new(Vec::with_capacity(secret.len() * 6 + 2));
    // Writing text to memory does not fail.
    serde_json::to_writer(&mut *text, secret).ok();
    text.pop();
    if !text.is_empty() {
        text.remove(0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_written_as_its_place_wants_it() {
        for (encoding, secret, expected) in [
            (Encoding::Percent, "tenant 42", "tenant%2042"),
            (Encoding::Percent, "query secret+value", "query%20secret%2Bvalue"),
            (Encoding::Percent, "a/b~c", "a%2Fb~c"),
            (Encoding::Percent, "ü", "%C3%BC"),
            (Encoding::Json, "body \"secret\" value", "body \\\"secret\\\" value"),
            (Encoding::Json, "\n\u{1}", "\\n\\u0001"),
            (Encoding::Form, "a b+c~*", "a+b%2Bc%7E*"),
            (Encoding::Raw, "a b", "a b"),
        ] {
            let written = encoding.apply(secret);
            assert_eq!(std::str::from_utf8(&written).unwrap(), expected, "{encoding:?}");
        }
    }
}
