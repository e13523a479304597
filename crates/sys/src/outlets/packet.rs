//! Packets of UDP, header by header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const V4_HEADER: usize = 20;
const HOPS: u8 = 64;

/// A packet with a datagram, if both ends are of one family and it is not too long for one.
pub(super) fn udp(from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
    match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let datagram = datagram(from, to, bytes, &v4_ends(source, destination))?;
            let length = u16::try_from(V4_HEADER + datagram.len()).ok()?;
            let mut packet = vec![0x45, 0];
            packet.extend(length.to_be_bytes());
            // The kernel fills in the number of the packet and the sum of this header.
            packet.extend([0, 0, 0, 0, HOPS, UDP, 0, 0]);
            packet.extend(v4_ends(source, destination));
            packet.extend(datagram);
            Some(packet)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ends = v6_ends(source, destination);
            let datagram = datagram(from, to, bytes, &ends)?;
            let length = u16::try_from(datagram.len()).ok()?;
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend(length.to_be_bytes());
            packet.extend([UDP, HOPS]);
            packet.extend(ends);
            packet.extend(datagram);
            Some(packet)
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
    }
}

/// A datagram with its header, whose sum covers the addresses at both `ends` too.
fn datagram(from: SocketAddr, to: SocketAddr, bytes: &[u8], ends: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(UDP_HEADER + bytes.len()).ok()?;
    let header = |sum: u16| {
        let words = [from.port(), to.port(), length, sum];
        words.into_iter().flat_map(u16::to_be_bytes)
    };
    let covered: Vec<u8> = header(0).chain(bytes.iter().copied()).collect();
    let mut sum = add(u64::from(UDP) + u64::from(length), ends);
    sum = add(sum, &covered);
    while let high @ 1.. = sum >> 16 {
        sum = (sum & 0xffff) + high;
    }
    // Zero would say that there is no sum.
    let sum = match u16::try_from(sum).map(|sum| !sum) {
        Ok(0) | Err(_) => u16::MAX,
        Ok(sum) => sum,
    };
    Some(header(sum).chain(bytes.iter().copied()).collect())
}

/// Adds up words of 16 bits; the last one may lack its second half.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| match pair {
        [high, low] => u16::from_be_bytes([*high, *low]),
        [high] => u16::from_be_bytes([*high, 0]),
        _ => 0,
    };
    bytes.chunks(2).fold(sum, |sum, pair| sum + u64::from(word(pair)))
}

fn v4_ends(source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    [source.octets(), destination.octets()].concat()
}

fn v6_ends(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    [source.octets(), destination.octets()].concat()
}
