//! What programs print, cut into events.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod lines;

use std::{io, os::fd::OwnedFd};

use osb_api::execd::Event;
use tokio::net::unix::pipe::Receiver;

use lines::Lines;

/// The most that is read at once. Every byte can become an event of sixty, so this bounds what is
/// held for a client.
pub(crate) const READ: usize = 32 << 10;

/// Makes an event of a line and a time.
type Make = fn(String, i64) -> Event;

/// One output of a command: a pipe, and the lines that come out of it.
#[derive(Debug)]
pub(crate) struct Output {
    /// Gone once all writers have closed it.
    pipe: Option<Receiver>,
    lines: Lines,
    make: Make,
}

impl Output {
    pub(crate) fn new(pipe: Option<impl Into<OwnedFd>>, make: Make) -> io::Result<Self> {
        let pipe = pipe.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let pipe = Receiver::from_owned_fd(pipe.into())?;
        Ok(Self { pipe: Some(pipe), lines: Lines::default(), make })
    }

    /// Resolves when there is something to read; never once the pipe is closed.
    pub(crate) async fn readable(&self) {
        match &self.pipe {
            // The only failure is that the event loop ends, and with it this program.
            Some(pipe) => drop(pipe.readable().await),
            None => std::future::pending().await,
        }
    }

    /// Reads what is there, once, and appends its events.
    pub(crate) fn read(&mut self, buffer: &mut [u8], now: i64, frames: &mut Vec<u8>) {
        let Some(pipe) = &self.pipe else { return };
        match pipe.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => self.pipe = None,
            Ok(length) => self.take(buffer.get(..length).unwrap_or_default(), now, frames),
        }
    }

    /// How much waits in the pipe at this moment.
    pub(crate) fn waiting(&self) -> u64 {
        self.pipe.as_ref().and_then(|pipe| rustix::io::ioctl_fionread(pipe).ok()).unwrap_or(0)
    }

    /// Reads at most `limit` bytes of what waits and returns how many that were, without asking
    /// the event loop, which may not have heard of them yet.
    pub(crate) fn drain(
        &mut self,
        buffer: &mut [u8],
        limit: u64,
        now: i64,
        frames: &mut Vec<u8>,
    ) -> u64 {
        let Some(pipe) = &self.pipe else { return 0 };
        let most = usize::try_from(limit).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        let Ok(length) = rustix::io::read(pipe, &mut *buffer) else { return 0 };
        self.take(buffer.get(..length).unwrap_or_default(), now, frames);
        length as u64
    }

    /// Appends the line that has no terminator, if there is one.
    pub(crate) fn finish(&mut self, now: i64, frames: &mut Vec<u8>) {
        let make = self.make;
        self.lines.finish(|text| make(text.into_owned(), now).frame(frames));
    }

    fn take(&mut self, bytes: &[u8], now: i64, frames: &mut Vec<u8>) {
        let make = self.make;
        self.lines.feed(bytes, |text| make(text.into_owned(), now).frame(frames));
    }
}
