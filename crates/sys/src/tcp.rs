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

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

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
}
