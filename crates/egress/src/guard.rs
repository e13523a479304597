//! Addresses that nobody reaches by chance: the host's own, those of its networks, and those that
//! are nobody's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Guarded, policy::range::Range};

/// A guarded address belongs to a block. A rule opens it by naming the block or a part of it; a
/// wider rule, such as one about all addresses, does not speak of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) kind: Guarded,
    pub(crate) range: Range,
}

/// How the guard knows which addresses the host has.
#[derive(Debug, Clone, Default)]
pub(crate) enum Host {
    /// The kernel is asked each time: addresses come and go.
    #[default]
    Asked,
    #[cfg(test)]
    Known(Vec<IpAddr>),
}

impl Host {
    /// An address that the kernel cannot say anything about counts as the host's.
    fn has(&self, address: IpAddr) -> bool {
        match self {
            Self::Asked => osb_sys::own_address::is_own(address).unwrap_or(true),
            #[cfg(test)]
            Self::Known(addresses) => addresses.contains(&address),
        }
    }
}

/// The block of an address that is guarded. The address is canonical.
pub(crate) fn block(address: IpAddr, host: &Host) -> Option<Block> {
    if METADATA.contains(&address) {
        return Some(Block { kind: Guarded::Metadata, range: Range::one(address) });
    }
    if let Some(inner) = translated(address) {
        return block(inner.into(), host);
    }
    let fixed = BLOCKS.iter().find(|(_, range)| range.contains(address));
    if let Some((Guarded::Host, range)) = fixed {
        return Some(Block { kind: Guarded::Host, range: *range });
    }
    if host.has(address) {
        return Some(Block { kind: Guarded::Host, range: Range::one(address) });
    }
    fixed.map(|(kind, range)| Block { kind: *kind, range: *range })
}

/// Whether an address is one of the public Internet, and not the host's, near it, or nobody's.
pub fn is_public(address: IpAddr) -> bool {
    block(address.to_canonical(), &Host::Asked).is_none()
}

/// Whether there are addresses that this range names as guarded. Any single one may be the host's.
pub(crate) fn could_hold(range: Range) -> bool {
    range == Range::one(range.first()) || BLOCKS.iter().any(|(_, block)| block.holds(range))
}

/// The address of IPv4 at which a translator of the network (RFC 6052) delivers what is sent to
/// this one of IPv6: two ways to write one host.
pub(crate) fn translated(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V6(address) if NAT64.contains(address.into()) => {
            let [.., a, b, c, d] = address.octets();
            Some(Ipv4Addr::new(a, b, c, d))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

const NAT64: Range = Range::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

/// Where sandboxes find themselves.
pub(crate) const LOOPBACK: [Range; 2] =
    [Range::v4([127, 0, 0, 0], 8), Range::v6([0, 0, 0, 0, 0, 0, 0, 1], 128)];

/// Where sandboxes find what they know by name: see the book of addresses.
pub(crate) const SYNTHETIC: [Range; 2] =
    [Range::v4([198, 18, 0, 0], 15), Range::v6([0xfd53, 0, 0, 0, 0, 0, 0, 0], 32)];

const METADATA: [IpAddr; 12] = [
    // Almost everybody; then containers and identities at Amazon, and Tencent.
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 0, 23)),
    // Alibaba, Azure, Oracle, Scaleway.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 42, 42)),
    // Amazon twice, Google, Scaleway.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
];

/// What is not the public Internet; the first that has an address is its block.
pub(crate) const BLOCKS: [(Guarded, Range); 29] = [
    (Guarded::Host, LOOPBACK[0]),
    (Guarded::Host, LOOPBACK[1]),
    (Guarded::Special, SYNTHETIC[0]),
    (Guarded::Special, SYNTHETIC[1]),
    (Guarded::Private, Range::v4([10, 0, 0, 0], 8)),
    (Guarded::Private, Range::v4([172, 16, 0, 0], 12)),
    (Guarded::Private, Range::v4([192, 168, 0, 0], 16)),
    // Shared by the customers of a provider.
    (Guarded::Private, Range::v4([100, 64, 0, 0], 10)),
    (Guarded::LinkLocal, Range::v4([169, 254, 0, 0], 16)),
    // This network, protocols, three for documentation, relays, multicast, reserved.
    (Guarded::Special, Range::v4([0, 0, 0, 0], 8)),
    (Guarded::Special, Range::v4([192, 0, 0, 0], 24)),
    (Guarded::Special, Range::v4([192, 0, 2, 0], 24)),
    (Guarded::Special, Range::v4([198, 51, 100, 0], 24)),
    (Guarded::Special, Range::v4([203, 0, 113, 0], 24)),
    (Guarded::Special, Range::v4([192, 88, 99, 0], 24)),
    (Guarded::Special, Range::v4([224, 0, 0, 0], 4)),
    (Guarded::Special, Range::v4([240, 0, 0, 0], 4)),
    (Guarded::Private, Range::v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7)),
    // Site-local, as it was before.
    (Guarded::Private, Range::v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10)),
    (Guarded::LinkLocal, Range::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10)),
    (Guarded::Special, Range::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8)),
    // Within what is public: protocols with Teredo, documentation, 6to4. Tunnels lead wherever
    // the address of IPv4 in them does.
    (Guarded::Special, Range::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23)),
    (Guarded::Special, Range::v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32)),
    (Guarded::Special, Range::v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20)),
    (Guarded::Special, Range::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16)),
    // Everything that is not 2000::/3, where the public addresses of IPv6 are.
    (Guarded::Special, Range::v6([0, 0, 0, 0, 0, 0, 0, 0], 3)),
    (Guarded::Special, Range::v6([0x4000, 0, 0, 0, 0, 0, 0, 0], 2)),
    (Guarded::Special, Range::v6([0x8000, 0, 0, 0, 0, 0, 0, 0], 2)),
    (Guarded::Special, Range::v6([0xc000, 0, 0, 0, 0, 0, 0, 0], 2)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Option<Guarded> {
        let host = Host::Known(vec!["93.184.216.34".parse().unwrap(), "10.0.0.5".parse().unwrap()]);
        let address: IpAddr = text.parse().unwrap();
        block(address.to_canonical(), &host).map(|block| block.kind)
    }

    #[test]
    fn public_addresses_are_not_guarded() {
        for text in [
            "1.1.1.1",
            "100.63.255.255",
            "172.32.0.1",
            "2606:4700::1",
            "64:ff9b::101:101",
            "2001:4860::1",
        ] {
            assert_eq!(kind(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_guarded_is_not_public() {
        for text in ["127.0.0.1", "::ffff:10.0.0.1", "169.254.169.254", "0.0.0.0", "::1"] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        assert!(is_public("1.1.1.1".parse().unwrap()));
    }

    #[test]
    fn everything_else_is() {
        for (expected, texts) in [
            (
                Guarded::Host,
                &[
                    "127.0.0.1",
                    "127.9.9.9",
                    "::1",
                    "::ffff:127.0.0.1",
                    "64:ff9b::7f00:1",
                    "93.184.216.34",
                    "::ffff:93.184.216.34",
                    "10.0.0.5",
                ][..],
            ),
            (
                Guarded::Metadata,
                &[
                    "169.254.169.254",
                    "::ffff:169.254.169.254",
                    "64:ff9b::a9fe:a9fe",
                    "100.100.100.200",
                    "168.63.129.16",
                    "fd00:ec2::254",
                    "fd20:ce::254",
                ],
            ),
            (
                Guarded::Private,
                &[
                    "10.1.2.3",
                    "172.16.0.1",
                    "172.31.255.255",
                    "192.168.1.1",
                    "100.64.0.1",
                    "100.127.255.255",
                    "fd12::1",
                    "fc00::1",
                    "fec0::1",
                    "64:ff9b::a01:203",
                ],
            ),
            (Guarded::LinkLocal, &["169.254.1.1", "fe80::1", "febf::1"]),
            (
                Guarded::Special,
                &[
                    "0.0.0.0",
                    "0.1.2.3",
                    "192.0.0.8",
                    "192.0.2.1",
                    "198.18.0.1",
                    "198.19.255.255",
                    "198.51.100.1",
                    "203.0.113.9",
                    "224.0.0.1",
                    "239.1.1.1",
                    "240.0.0.1",
                    "255.255.255.255",
                    "192.88.99.1",
                    "::",
                    "::7f00:1",
                    "::a00:1",
                    "ff02::1",
                    "2001::1",
                    "2002:7f00:1::1",
                    "2002:a00:1::",
                    "2001:db8::1",
                    "3fff::1",
                    "64:ff9b:1::1",
                    "100::1",
                    "fd53::1",
                    "fd53:0:0:1::9",
                    "5f00::1",
                    "4000::1",
                    "e000::1",
                ],
            ),
        ] {
            for text in texts {
                assert_eq!(kind(text), Some(expected), "{text}");
            }
        }
    }
}
