//! Where everything arrives that a network namespace sends.
//!
//! Such a namespace has no wire. It has `lo`, on which every address of both families is at home, and
//! a table of the kernel's packet filter that hands what is for others to sockets that whoever
//! made the namespace opened in it. When these are closed, connections are refused and
//! datagrams go nowhere.

mod datagram;
mod netlink;
mod packet;
mod routes;
mod table;

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, SocketFlags, SocketType, bind, ipproto, listen, socket_with,
        sockopt,
    },
    thread::{UnshareFlags, unshare_unsafe},
};

pub use self::datagram::{Received, answer, receive};

/// What programs in the namespace see as their own address, beside those of the loopback.
pub const OWN: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(198, 18, 0, 1), Ipv6Addr::new(0xfd53, 0, 0, 0, 0, 0, 0, 1));

/// Where the sockets are bound. Nobody reaches them by this number, and whoever has no power over
/// the namespace can be kept from taking it, see [`FIRST_FREE_PORT`].
const PORT: u16 = 1;

/// The first port that every program in the namespace may bind.
pub const FIRST_FREE_PORT: u16 = PORT + 1;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 128;

/// How many bytes of datagrams may wait to be received, as the kernel counts them: it takes twice
/// the number. One that is larger is taken if it is alone.
const WAITING: usize = 32 * 1024;

/// The sockets at which everything arrives. All are in non-blocking mode.
#[derive(Debug)]
pub struct Outlets {
    /// Takes every connection. The local address of one that is taken is where it was to go.
    pub streams: TcpListener,
    /// For [`receive`].
    pub datagrams: UdpSocket,
    /// For [`answer`]: raw sockets of IPv4 and IPv6.
    pub answers: (OwnedFd, OwnedFd),
}

impl Outlets {
    /// Furnishes the network namespace that this thread is in, which is new, and opens its outlets.
    pub fn furnish() -> io::Result<Self> {
        // In this order: without the table, every address would be the namespace's own.
        table::add()?;
        routes::add()?;
        Self::sockets()
    }

    /// The same, if it may be furnished already. Fails while there are others.
    pub fn open() -> io::Result<Self> {
        if !table::is_there()? {
            return Self::furnish();
        }
        routes::add()?;
        Self::sockets()
    }

    fn sockets() -> io::Result<Self> {
        let streams = transparent(SocketType::STREAM)?;
        listen(&streams, BACKLOG)?;
        let datagrams = transparent(SocketType::DGRAM)?;
        set(&datagrams, libc::SOL_IP, libc::IP_RECVORIGDSTADDR)?;
        set(&datagrams, libc::SOL_IPV6, libc::IPV6_RECVORIGDSTADDR)?;
        sockopt::set_socket_recv_buffer_size(&datagrams, WAITING)?;
        let answers = (raw(AddressFamily::INET)?, raw(AddressFamily::INET6)?);
        set(&answers.0, libc::SOL_IP, libc::IP_HDRINCL)?;
        set(&answers.1, libc::SOL_IPV6, libc::IPV6_HDRINCL)?;
        Ok(Self { streams: streams.into(), datagrams: datagrams.into(), answers })
    }

    /// The descriptors, in the order of [`Outlets::from_fds`].
    pub fn into_fds(self) -> [OwnedFd; 4] {
        let (fourth, sixth) = self.answers;
        [self.streams.into(), self.datagrams.into(), fourth, sixth]
    }

    pub fn from_fds([streams, datagrams, fourth, sixth]: [OwnedFd; 4]) -> Self {
        Self { streams: streams.into(), datagrams: datagrams.into(), answers: (fourth, sixth) }
    }
}

/// Opens outlets in a network namespace that is made for it and goes with it: whether this kernel
/// can do all that they need.
pub fn try_apart() -> io::Result<()> {
    let trial = || {
        // SAFETY: a network namespace has nothing to do with memory; only this thread goes there.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        Outlets::furnish().map(drop)
    };
    let thread = std::thread::Builder::new().spawn(trial)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the trial has ended early")))
}

/// A socket of both families to which the table hands what is for others.
fn transparent(kind: SocketType) -> io::Result<OwnedFd> {
    let socket = open(AddressFamily::INET6, kind, None)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    set(&socket, libc::SOL_IP, libc::IP_TRANSPARENT)?;
    set(&socket, libc::SOL_IPV6, libc::IPV6_TRANSPARENT)?;
    bind(&socket, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT)))?;
    Ok(socket)
}

/// A socket that sends whole packets, and for which nothing ever waits.
fn raw(family: AddressFamily) -> io::Result<OwnedFd> {
    let socket = open(family, SocketType::RAW, Some(ipproto::RAW))?;
    sockopt::set_socket_recv_buffer_size(&socket, 0)?;
    Ok(socket)
}

fn open(
    family: AddressFamily,
    kind: SocketType,
    protocol: Option<Protocol>,
) -> Result<OwnedFd, Errno> {
    socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, protocol)
}

/// Switches an option of a socket on.
fn set(socket: impl AsFd, level: i32, option: i32) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).map_err(io::Error::other)?;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the value is an integer that outlives the call, and `length` is its size.
    let result = unsafe { libc::setsockopt(socket, level, option, (&raw const on).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
