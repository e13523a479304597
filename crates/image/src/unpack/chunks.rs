//! Content on its way from one thread to another.

use std::{
    io::{self, BufRead, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

/// How much is passed on at once, and how often before somebody has to take it.
pub(super) const SIZE: usize = 512 << 10;
const WAITING: usize = 8;

/// Two ends of a line of chunks. Those that were read come back to be filled again.
pub(super) fn channel() -> (Sender, Chunks) {
    let (full, taken) = sync_channel(WAITING);
    let (back, empty) = sync_channel(WAITING + 2);
    (Sender { full, empty }, Chunks { taken, back, current: Vec::new(), at: 0 })
}

#[derive(Debug)]
pub(super) struct Sender {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
}

impl Sender {
    pub(super) fn empty_chunk(&self) -> Vec<u8> {
        self.empty.try_recv().unwrap_or_default()
    }

    /// Waits until there is place. Answers whether anybody still listens.
    pub(super) fn send(&self, chunk: Vec<u8>) -> bool {
        self.full.send(chunk).is_ok()
    }
}

/// The chunks as one stream.
#[derive(Debug)]
pub(super) struct Chunks {
    taken: Receiver<Vec<u8>>,
    back: SyncSender<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
}

impl BufRead for Chunks {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at >= self.current.len() {
            let Ok(next) = self.taken.recv() else { return Ok(&[]) };
            self.at = 0;
            // There is place for all that are on their way.
            self.back.try_send(std::mem::replace(&mut self.current, next)).ok();
        }
        Ok(self.current.get(self.at..).unwrap_or_default())
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
    }
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        if let (Some(from), Some(to)) = (available.get(..count), buffer.get_mut(..count)) {
            to.copy_from_slice(from);
        }
        self.consume(count);
        Ok(count)
    }
}
