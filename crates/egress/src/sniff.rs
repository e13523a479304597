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
        Some(kind) if hello::OTHER_RECORDS.contains(kind) => hello::read_other(bytes),
        Some(_) => request::read(bytes),
    };
    if seen == Seen::Undecided && bytes.len() >= LONGEST { Seen::Ambiguous } else { seen }
}

/// Reads the first bytes of a connection on which no others follow.
pub(crate) fn sniff_all(bytes: &[u8]) -> Seen {
    // To some servers the end of a connection is the end of a head.
    let seen = sniff(&[bytes, b"\n\n"].concat());
    if seen == Seen::Undecided { Seen::Ambiguous } else { seen }
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
    fn an_end_is_an_end_of_the_head() {
        let host = |name| Seen::Host(Said::Name(Name::parse(name).unwrap()));
        assert_eq!(sniff(b"GET / HTTP/1.1\r\nHost: b.test"), Seen::Undecided);
        assert_eq!(sniff_all(b"GET / HTTP/1.1\r\nHost: b.test"), host("b.test"));
        assert_eq!(sniff_all(b"ping"), Seen::Nobody);
        assert_eq!(sniff_all(&hello_for("b.test")[..30]), Seen::Ambiguous);
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
