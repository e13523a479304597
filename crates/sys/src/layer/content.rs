//! What is in files.

use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{Stat, copy_file_range, ftruncate, ioctl_ficlone},
    io::{Errno, pread, pwrite},
};

use crate::sparse;

/// How much is copied before somebody may break it off.
const CHUNK: u64 = 16 << 20;

/// Copies content, and knows by now what the file systems can do.
#[derive(Debug)]
pub(crate) struct Content {
    /// How much was copied so far.
    pub(crate) bytes: u64,
    /// Whether two files may share what is in them.
    shares: bool,
    /// Whether the kernel copies from one of these file systems to the other.
    copies: bool,
}

impl Default for Content {
    fn default() -> Self {
        Self { bytes: 0, shares: true, copies: true }
    }
}

impl Content {
    /// Copies the content of a file to a new one; holes stay holes.
    pub(crate) fn copy(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        stat: &Stat,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let size = u64::try_from(stat.st_size).map_err(io::Error::other)?;
        if size == 0 {
            return Ok(());
        }
        if self.shares {
            if ioctl_ficlone(to, from).is_ok() {
                let allocated = u64::try_from(stat.st_blocks).unwrap_or_default() * 512;
                self.bytes += allocated.min(size);
                return Ok(());
            }
            self.shares = false;
        }
        ftruncate(to, size)?;
        sparse::each_range(from, size, |begin, end| self.range(from, to, begin, end, stop))
    }

    fn range(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        mut at: u64,
        end: u64,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        while at < end {
            if stop.load(Ordering::Relaxed) {
                return Err(super::broken_off());
            }
            let count = self.chunk(from, to, at, (end - at).min(CHUNK))?;
            if count == 0 {
                return Err(super::changed());
            }
            at += count;
            self.bytes += count;
        }
        Ok(())
    }

    fn chunk(&mut self, from: &OwnedFd, to: &OwnedFd, at: u64, most: u64) -> io::Result<u64> {
        if self.copies {
            let length = usize::try_from(most).map_err(io::Error::other)?;
            let (mut read, mut written) = (at, at);
            match copy_file_range(from, Some(&mut read), to, Some(&mut written), length) {
                Ok(count) => return Ok(count as u64),
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                    self.copies = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let mut buffer = vec![0; usize::try_from(most.min(1 << 18)).map_err(io::Error::other)?];
        let count = pread(from, &mut buffer, at)?;
        let mut rest = buffer.get(..count).unwrap_or_default();
        let mut written = at;
        while !rest.is_empty() {
            let count = pwrite(to, rest, written)?;
            rest = rest.get(count..).unwrap_or_default();
            written += count as u64;
        }
        Ok(count as u64)
    }
}
