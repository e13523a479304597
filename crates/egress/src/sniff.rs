//! Whom the first bytes of a connection say that it is for. Everything read here comes from
//! somebody hostile.

mod hello;
mod request;

#[cfg(test)]
pub(crate) use self::hello::tests::hello_for;
use crate::Name;

/// What the first bytes of a connection tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// They are not enough to tell.
    Undecided,
    /// They name nobody: another protocol, or one of those that can do without.
    Nobody,
    Host(Said),
    /// They are made so that two readers would understand them differently, or too long.
    Ambiguous,
}

/// A host as it was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Name(Name),
    Address(std::net::IpAddr),
}

/// The most that is looked at: no client begins with more than this before it has named its host.
pub(crate) const LONGEST: usize = 16 * 1024;

/// Reads the first bytes of a connection.
pub(crate) fn sniff(bytes: &[u8]) -> Seen {
    let seen = match bytes.first() {
        None => Seen::Undecided,
        Some(&hello::RECORD) => hello::read(bytes),
        Some(_) => request::read(bytes),
    };
    if seen == Seen::Undecided && bytes.len() >= LONGEST { Seen::Ambiguous } else { seen }
}

impl Said {
    /// A host as headers and the like name it, without a port.
    fn parse(text: &str) -> Option<Self> {
        let address =
            text.strip_prefix('[').map_or(text, |text| text.strip_suffix(']').unwrap_or(text));
        match address.parse() {
            Ok(address) => Some(Self::Address(address)),
            Err(_) => Name::parse(text).ok().map(Self::Name),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn anything_can_be_read(bytes: Vec<u8>, tls: bool) {
            let mut bytes = bytes;
            if tls {
                bytes.splice(..0, [22, 3, 1, 0, 200, 1, 0, 0, 196]);
            }
            sniff(&bytes);
        }
    }

    #[test]
    fn nothing_waits_for_ever() {
        for start in ["GET /", "\u{16}\u{3}\u{1}\u{40}\u{0}\u{1}"] {
            let mut bytes = start.as_bytes().to_vec();
            assert_eq!(sniff(&bytes), Seen::Undecided);
            bytes.resize(LONGEST, b'a');
            assert_ne!(sniff(&bytes), Seen::Undecided);
        }
    }
}
