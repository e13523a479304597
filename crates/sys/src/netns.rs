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

use crate::fork::{self, SingleThread};

/// A new network namespace with its loopback up.
///
/// The process goes there and comes back. The namespace lives as long as the descriptor.
pub fn make(alone: &SingleThread) -> io::Result<OwnedFd> {
    let here = || File::open("/proc/self/ns/net").map(OwnedFd::from);
    let home = here()?;
    fork::unshare(alone, UnshareFlags::NEWNET)?;
    let made = bring_up_loopback().and_then(|()| here());
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

#[derive(Debug)]
struct Request {
    process: OwnedFd,
    family: AddressFamily,
    answer: mpsc::SyncSender<io::Result<OwnedFd>>,
}

impl SocketOpener {
    pub fn start() -> io::Result<Self> {
        let (requests, inbox) = mpsc::channel::<Request>();
        thread::Builder::new().name("socket-opener".to_owned()).spawn(move || {
            for request in inbox {
                // A caller that stopped waiting drops its end, and the socket closes again.
                drop(request.answer.send(open_in(&request.process, request.family)));
            }
        })?;
        Ok(Self { requests })
    }

    /// A non-blocking TCP socket that lives in the network namespace of `process` (a pidfd).
    ///
    /// Takes some microseconds: nothing here waits for the network.
    pub fn tcp(&self, process: impl AsFd, to: SocketAddr) -> io::Result<OwnedFd> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let (answer, opened) = mpsc::sync_channel(1);
        let process = process.as_fd().try_clone_to_owned()?;
        let gone = || io::Error::other("the socket opener has ended");
        self.requests.send(Request { process, family, answer }).map_err(|_| gone())?;
        opened.recv().map_err(|_| gone())?
    }
}

fn open_in(process: &OwnedFd, family: AddressFamily) -> io::Result<OwnedFd> {
    move_into_thread_name_spaces(process.as_fd(), ThreadNameSpaceType::NETWORK)?;
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}
