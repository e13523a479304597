use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// All addresses of one family that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    /// The first of them.
    first: IpAddr,
    length: u8,
}

impl Range {
    /// The range of `length` bits that `address` is in. Mapped addresses are those of IPv4.
    pub(crate) fn new(address: IpAddr, length: u8) -> Option<Self> {
        let canonical = address.to_canonical();
        let length =
            if canonical.is_ipv4() && address.is_ipv6() { length.checked_sub(96)? } else { length };
        (length <= bits(canonical)).then(|| Self { first: cut(canonical, length), length })
    }

    /// The range of one address.
    pub(crate) fn one(address: IpAddr) -> Self {
        let first = address.to_canonical();
        Self { first, length: bits(first) }
    }

    pub(crate) const fn v4(first: [u8; 4], length: u8) -> Self {
        Self { first: IpAddr::V4(Ipv4Addr::from_octets(first)), length }
    }

    pub(crate) const fn v6(first: [u16; 8], length: u8) -> Self {
        Self { first: IpAddr::V6(Ipv6Addr::from_segments(first)), length }
    }

    /// Reads an address, or `address/length`. `None` if it is not meant to be either.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, BadRange>> {
        let Some((address, length)) = text.split_once('/') else {
            return text.parse().ok().map(|address| Ok(Self::one(address)));
        };
        let address: IpAddr = address.parse().ok()?;
        let digits = length.len() <= 3 && length.bytes().all(|b| b.is_ascii_digit());
        let length = digits.then(|| length.parse().ok()).flatten();
        Some(length.and_then(|length| Self::new(address, length)).ok_or(BadRange))
    }

    pub(crate) fn first(self) -> IpAddr {
        self.first
    }

    pub(crate) fn length(self) -> u8 {
        self.length
    }

    pub(crate) fn is_v4(self) -> bool {
        self.first.is_ipv4()
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && cut(address, self.length) == self.first
    }

    pub(crate) fn holds(self, other: Self) -> bool {
        self.length <= other.length && self.contains(other.first)
    }
}

/// What has the form of a range and is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadRange;

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with all bits beyond `length` cleared.
pub(crate) fn cut(address: IpAddr, length: u8) -> IpAddr {
    let length = u32::from(length);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        Range::parse(text).unwrap().unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_has_what_begins_like_it() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.0"),
            ("10.1.2.3/8", "10.255.1.2", "11.0.0.0"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("::/0", "ffff::", "1.2.3.4"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("fd00::/8", "fdff::1", "fc00::1"),
            ("::ffff:10.0.0.0/104", "10.9.9.9", "11.0.0.0"),
            ("::ffff:192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ] {
            assert!(range(text).contains(address(inside)), "{inside} is not in {text}");
            assert!(!range(text).contains(address(outside)), "{outside} is in {text}");
        }
        assert!(range("10.0.0.0/8").holds(range("10.2.0.0/16")));
        assert!(!range("10.2.0.0/16").holds(range("10.0.0.0/8")));
        assert!(!range("0.0.0.0/0").holds(range("::/0")));
    }

    #[test]
    fn what_is_no_range_is_told_from_what_is_a_bad_one() {
        for text in ["example.com", "a/b", "1.2.3", "10.0.0.0.0/8", "fe80::1%eth0", "[::1]", ""] {
            assert!(Range::parse(text).is_none(), "{text:?}");
        }
        for text in
            ["10.0.0.0/33", "10.0.0.0/", "10.0.0.0/x", "::/129", "10.0.0.0/+8", "::ffff:1.2.3.4/90"]
        {
            assert_eq!(Range::parse(text), Some(Err(BadRange)), "{text:?}");
        }
    }
}
