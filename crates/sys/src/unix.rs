//! Unix sockets at paths of any length.
//!
//! A socket's name holds at most 108 bytes, and data directories can be deep; the way through
//! `/proc/self/fd` is always short.

use std::{
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// How many connections may wait before execd accepts them.
const BACKLOG: i32 = 1024;

/// A listener at `directory/name`, in blocking mode.
pub fn listen(directory: &Path, name: &str) -> io::Result<UnixListener> {
    let directory = open_directory(directory)?;
    let listener = UnixListener::bind(short(&directory, name))?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// A connection to the listener at `directory/name`, in non-blocking mode.
///
/// Connecting does not wait: the listener's queue takes the connection or the call fails.
pub fn connect(directory: &Path, name: &str) -> io::Result<UnixStream> {
    let directory = open_directory(directory)?;
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK,
        None,
    )?;
    let address = rustix::net::SocketAddrUnix::new(short(&directory, name))?;
    rustix::net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn short(directory: &OwnedFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_long_path_is_no_obstacle() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(120)).join("e".repeat(120));
        crate::fs::create_dir_all(&deep).unwrap();
        let listener = listen(&deep, "s.sock").unwrap();
        let mut client = connect(&deep, "s.sock").unwrap();
        client.write_all(b"hi").unwrap();
        drop(client);
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hi");
    }

    #[test]
    fn nobody_listening_is_a_refusal() {
        let directory = tempfile::tempdir().unwrap();
        drop(listen(directory.path(), "s.sock").unwrap());
        let error = connect(directory.path(), "s.sock").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
