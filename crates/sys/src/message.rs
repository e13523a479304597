//! Typed messages with descriptors, over a pair of sockets.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};

/// The largest message, as JSON.
const MAX_BYTES: usize = 64 * 1024;
/// The most descriptors with one message.
const MAX_FDS: usize = 32;

/// Two connected ends that keep message boundaries.
pub fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message. In non-blocking mode it fails with `WouldBlock` and has then sent nothing.
pub fn send<M: Serialize>(
    channel: impl AsFd,
    message: &M,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_BYTES || fds.len() > MAX_FDS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too large"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
    }
    sendmsg(channel, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message, or `None` when the other end is closed.
pub fn receive<M: DeserializeOwned>(channel: impl AsFd) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        channel,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(part) = part {
            fds.extend(part);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message was cut off"));
    }
    bytes.truncate(received.bytes);
    Ok(Some((serde_json::from_slice(&bytes)?, fds)))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read, os::fd::AsFd};

    use super::*;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (here, there) = channel().unwrap();
        let file = crate::memfd::with_content("x", b"content").unwrap();
        send(&here, &("hello", 7), &[file.as_fd(), file.as_fd()]).unwrap();
        send(&here, &("again", 8), &[]).unwrap();
        let (first, fds) = receive::<(String, u8)>(&there).unwrap().unwrap();
        assert_eq!((first, fds.len()), (("hello".to_owned(), 7), 2));
        let mut text = String::new();
        File::from(fds.into_iter().next().unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
        let (second, fds) = receive::<(String, u8)>(&there).unwrap().unwrap();
        assert_eq!((second, fds.len()), (("again".to_owned(), 8), 0));
    }

    #[test]
    fn a_closed_end_is_no_message() {
        let (here, there) = channel().unwrap();
        drop(here);
        assert!(receive::<u8>(&there).unwrap().is_none());
    }
}
