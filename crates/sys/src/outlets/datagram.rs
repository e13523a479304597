//! Datagrams that were for others, and answers to them.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::net::{SendFlags, sendto};

use super::packet;

/// A datagram as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    pub from: SocketAddr,
    /// Where it was to go.
    pub to: SocketAddr,
    /// How much of the buffer it takes.
    pub length: usize,
}

/// Takes one datagram from [`super::Outlets::datagrams`]. One that is longer than `buffer` is lost,
/// which is an error of the kind `InvalidData`.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let (mut from, mut control) = (Aligned([0; 128]), Aligned([0; 128]));
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero bytes are a valid `msghdr`: integers and null pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = from.0.as_mut_ptr().cast();
    message.msg_namelen = fit(from.0.len())?;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = fit(control.0.len())?;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: every pointer in `message` is to something that lives on and is as long as it says.
    let length = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    if message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(invalid("the datagram is longer than the buffer"));
    }
    let filled = control.0.get(..fit(message.msg_controllen)?).unwrap_or_default();
    let to = destination(filled).ok_or_else(|| invalid("the datagram has no destination"))?;
    let from = address(&from.0).ok_or_else(|| invalid("the datagram has no source"))?;
    Ok(Received { from, to, length })
}

/// Sends a datagram into the namespace with [`super::Outlets::answers`], to a socket there and as if
/// it came from `from`. Both are of one family.
pub fn answer(
    answers: &(OwnedFd, OwnedFd),
    from: SocketAddr,
    to: SocketAddr,
    bytes: &[u8],
) -> io::Result<()> {
    let unfit = || io::Error::new(io::ErrorKind::InvalidInput, "the answer fits in no packet");
    let packet = packet::udp(from, to, bytes).ok_or_else(unfit)?;
    let socket = if to.is_ipv4() { &answers.0 } else { &answers.1 };
    // The port is in the packet; here it would be the number of a protocol.
    sendto(socket, &packet, SendFlags::empty(), &SocketAddr::new(to.ip(), 0))?;
    Ok(())
}

/// Room for what the kernel writes, aligned as it wants that to be.
#[repr(align(8))]
struct Aligned([u8; 128]);

/// The address among the ancillary data to which a datagram was sent.
///
/// Each piece is a length, a level and a kind, then what it says, then room up to the next.
fn destination(mut control: &[u8]) -> Option<SocketAddr> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    loop {
        let length = usize::from_ne_bytes(*control.first_chunk()?);
        let words = control.get(size_of::<usize>()..)?;
        let level = i32::from_ne_bytes(*words.first_chunk()?);
        let kind = i32::from_ne_bytes(*words.get(4..)?.first_chunk()?);
        let content = control.get(HEADER..length)?;
        match (level, kind) {
            (libc::SOL_IP, libc::IP_ORIGDSTADDR) | (libc::SOL_IPV6, libc::IPV6_ORIGDSTADDR) => {
                return address(content);
            }
            _ => {}
        }
        control = control.get(length.next_multiple_of(align_of::<usize>())..)?;
    }
}

/// An address as the kernel writes them; one of IPv4 that is written as IPv6 is one of IPv4.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into(),
        libc::AF_INET6 => {
            IpAddr::from(Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// A length in the type that this system's library has for it.
fn fit<From, Into: TryFrom<From>>(length: From) -> io::Result<Into> {
    Into::try_from(length).map_err(|_| io::Error::other("a length does not fit"))
}
