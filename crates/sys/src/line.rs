//! Typed messages with descriptors, in the event loop.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::io::ioctl_fionbio;
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{message, ready};

/// One end of a [`message::channel`].
#[derive(Debug)]
pub struct Line {
    channel: AsyncFd<OwnedFd>,
}

impl Line {
    /// Must be called within the event loop.
    pub fn new(channel: OwnedFd) -> io::Result<Self> {
        ioctl_fionbio(&channel, true)?;
        let channel = ready::register(channel, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { channel })
    }

    /// Sends one message, once there is room for it.
    pub async fn send<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            let mut ready = self.channel.writable().await?;
            match ready.try_io(|channel| message::send(channel.get_ref(), message, fds)) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Receives one message, or `None` when the other end is closed.
    pub async fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        loop {
            let mut ready = self.channel.readable().await?;
            match ready.try_io(|channel| message::receive(channel.get_ref())) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }
}
