//! Network namespaces: making them, and opening sockets in them.

use std::{
    fs::File,
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::mpsc,
    thread,
};

use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
    thread::{
        LinkNameSpaceType, ThreadNameSpaceType, UnshareFlags, move_into_link_name_space,
        move_into_thread_name_spaces,
    },
};

use crate::{
    fork::{self, SingleThread},
    outlets::Outlets,
};

/// A new network namespace, and the result of `work` in it.
///
/// The process goes there and comes back. The namespace lives as long as the descriptor.
pub fn make<T>(
    alone: &SingleThread,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<(OwnedFd, T)> {
    let here = || File::open("/proc/self/ns/net").map(OwnedFd::from);
    let home = here()?;
    fork::unshare(alone, UnshareFlags::NEWNET)?;
    let made = work().and_then(|result| Ok((here()?, result)));
    enter(alone, &home)?;
    made
}

/// Moves this process into a network namespace.
pub fn enter(_alone: &SingleThread, namespace: impl AsFd) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Brings up the loopback interface of the namespace that this thread is in.
pub fn bring_up_loopback() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all-zero bytes are a valid `ifreq`: it is plain integers and byte arrays.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        // Signed or not, as the machine has its characters.
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING)
        .map_err(|_| io::Error::other("interface flags do not fit"))?;
    // SAFETY: SIOCSIFFLAGS reads an `ifreq` with a NUL-terminated name, and `request` is one.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens sockets inside the network namespaces of other processes.
///
/// A thread of its own goes from namespace to namespace, so that no other thread of this process
/// ever leaves the host's. It ends with the last handle.
#[derive(Debug, Clone)]
pub struct SocketOpener {
    requests: mpsc::Sender<Request>,
}

struct Request {
    process: OwnedFd,
    /// Hears whether this is the namespace of the process.
    work: Box<dyn FnOnce(io::Result<()>) + Send>,
}

impl SocketOpener {
    pub fn start() -> io::Result<Self> {
        let (requests, inbox) = mpsc::channel::<Request>();
        thread::Builder::new().name("socket-opener".to_owned()).spawn(move || {
            for Request { process, work } in inbox {
                let network = ThreadNameSpaceType::NETWORK;
                let entered = move_into_thread_name_spaces(process.as_fd(), network);
                work(entered.map_err(io::Error::from));
            }
        })?;
        Ok(Self { requests })
    }

    /// A non-blocking TCP socket that lives in the network namespace of `process` (a pidfd).
    ///
    /// Takes some microseconds: nothing here waits for the network.
    pub fn tcp(&self, process: impl AsFd, to: SocketAddr) -> io::Result<OwnedFd> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        self.within(process, move || Ok(socket_with(family, SocketType::STREAM, flags, None)?))
    }

    /// New outlets of the network namespace of `process` (a pidfd), see [`Outlets::open`].
    pub fn outlets(&self, process: impl AsFd) -> io::Result<Outlets> {
        self.within(process, Outlets::open)
    }

    fn within<T: Send + 'static>(
        &self,
        process: impl AsFd,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, done) = mpsc::sync_channel(1);
        let process = process.as_fd().try_clone_to_owned()?;
        let gone = || io::Error::other("the socket opener has ended");
        // A caller that stopped waiting drops its end, and what was opened closes again.
        let work = Box::new(move |entered: io::Result<()>| {
            drop(answer.send(entered.and_then(|()| work())));
        });
        self.requests.send(Request { process, work }).map_err(|_| gone())?;
        done.recv().map_err(|_| gone())?
    }
}
