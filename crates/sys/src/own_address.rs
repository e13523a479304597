//! Whether an address is one of this machine's own, as the kernel would decide if something were
//! sent there.

use std::{io, net::IpAddr};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink,
        recv, sendto, socket_with,
    },
};

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const RTA_DST: u16 = 1;
/// Of the kinds of routes: deliver here, deliver here as a broadcast, deliver here as one of many.
const DELIVERED_HERE: [u8; 3] = [2, 3, 4];
/// Lengths of `nlmsghdr` and `rtmsg`, and where the latter has the kind of the route.
const HEADER: usize = 16;
const ROUTE: usize = 12;
const KIND: usize = HEADER + 7;

/// Whether what is sent to `address` arrives on this machine. Addresses of all interfaces count,
/// those that were added a moment ago too. The question costs in the order of ten microseconds.
pub fn is_own(address: IpAddr) -> io::Result<bool> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &question(address), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 4096];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    read(answer.get(..length).unwrap_or_default())
}

/// What the kernel's answer says.
fn read(answer: &[u8]) -> io::Result<bool> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    match kind {
        Some(RTM_NEWROUTE) => {
            let route = answer.get(KIND).ok_or(io::ErrorKind::InvalidData)?;
            Ok(DELIVERED_HERE.contains(route))
        }
        Some(NLMSG_ERROR) => {
            let code = answer.get(HEADER..).and_then(<[u8]>::first_chunk);
            let code = i32::from_ne_bytes(*code.ok_or(io::ErrorKind::InvalidData)?);
            match Errno::from_raw_os_error(-code) {
                // No route leads there, or one that lets nothing through: nothing is delivered.
                Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL => Ok(false),
                // It could not say.
                error => Err(error.into()),
            }
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Asks for the route to one address: see rtnetlink(7).
fn question(address: IpAddr) -> Vec<u8> {
    let (family, bits, octets) = match address {
        IpAddr::V4(address) => (AddressFamily::INET, 32, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, 128, address.octets().to_vec()),
    };
    let mut route = [0; ROUTE];
    // Families have small numbers; the byte order decides which half holds it.
    let family = family.as_raw().to_ne_bytes();
    route[..2].copy_from_slice(&[family[0] | family[1], bits]);
    let attribute: u16 = if bits == 32 { 8 } else { 20 };
    let whole: u32 = if bits == 32 { 36 } else { 48 };
    [
        &whole.to_ne_bytes()[..],
        &RTM_GETROUTE.to_ne_bytes(),
        &NLM_F_REQUEST.to_ne_bytes(),
        &[0; 8],
        &route,
        &attribute.to_ne_bytes(),
        &RTA_DST.to_ne_bytes(),
        &octets,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_our_own_and_the_documentation_is_not() {
        for (text, own) in [
            ("127.0.0.1", true),
            ("127.200.3.4", true),
            ("::1", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_own(text.parse().unwrap()).unwrap(), own, "{text}");
        }
    }

    #[test]
    fn an_address_is_somebody_elses_only_if_the_kernel_says_so() {
        let failed = |error: Errno| {
            let mut answer = vec![0; HEADER];
            answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
            answer.extend((-error.raw_os_error()).to_ne_bytes());
            answer
        };
        assert!(!read(&failed(Errno::NETUNREACH)).unwrap());
        assert_eq!(read(&failed(Errno::NOBUFS)).unwrap_err().raw_os_error(), Some(105));
        assert!(read(&failed(Errno::NETUNREACH)[..HEADER]).is_err());
        assert!(read(&[]).is_err());
    }

    #[test]
    fn the_addresses_of_interfaces_are_our_own() {
        // What this machine would send from is one of its addresses, if it can send at all.
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            assert!(is_own(socket.local_addr().unwrap().ip()).unwrap());
        }
    }
}
