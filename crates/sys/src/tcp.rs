//! What the kernel knows of a connection.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _},
};

/// How many bytes wait in the kernel because the other side has no room for them.
pub fn unsent(stream: impl AsFd) -> io::Result<usize> {
    /// What Linux calls it; the C library does not.
    const SIOCOUTQNSD: libc::Ioctl = 0x894b;
    let mut bytes: libc::c_int = 0;
    let stream = stream.as_fd().as_raw_fd();
    // SAFETY: this request writes one integer, which outlives the call.
    let result = unsafe { libc::ioctl(stream, SIOCOUTQNSD, &raw mut bytes) };
    if result == 0 {
        usize::try_from(bytes).map_err(io::Error::other)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets nobody who waits for bytes be woken for less than so many. The end of a connection wakes them.
pub fn wake_at(stream: impl AsFd, bytes: u16) -> io::Result<()> {
    let bytes = libc::c_int::from(bytes);
    let length = libc::socklen_t::try_from(size_of_val(&bytes)).map_err(io::Error::other)?;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    let stream = stream.as_fd().as_raw_fd();
    // SAFETY: `bytes` outlives the call, which reads no more than its length.
    let result =
        unsafe { libc::setsockopt(stream, level, option, (&raw const bytes).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn what_has_no_room_on_the_other_side_is_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.write_all(b"little").unwrap();
        assert_eq!(unsent(&stream).unwrap(), 0);
        let mut sent = 6;
        while let Ok(more) = stream.write(&[0; 8192]) {
            sent += more;
        }
        assert!(unsent(&stream).unwrap() > 0);
        let mut all = vec![0; sent];
        other.read_exact(&mut all).unwrap();
        assert_eq!(unsent(&stream).unwrap(), 0);
    }

    #[test]
    fn nobody_is_woken_for_too_little() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let is_readable = || {
            let mut polled = [PollFd::new(&other, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
        };
        wake_at(&other, 3).unwrap();
        stream.write_all(b"ab").unwrap();
        assert!(!is_readable());
        stream.write_all(b"c").unwrap();
        assert!(is_readable());
        wake_at(&other, 4).unwrap();
        assert!(!is_readable());
        wake_at(&other, 1).unwrap();
        assert!(is_readable());
        wake_at(&other, 4).unwrap();
        drop(stream);
        assert!(is_readable());
        let mut all = Vec::new();
        other.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"abc");
    }
}
