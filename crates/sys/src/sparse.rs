//! Files that are mostly holes.

use std::{
    fs::File,
    io::{self, Write},
    os::{fd::AsFd, unix::fs::FileExt},
};

use rustix::{
    fs::{SeekFrom, copy_file_range, fstat, ftruncate, ioctl_ficlone, seek},
    io::Errno,
};

/// How much is looked at at once for whether it is nothing but zeros.
const PIECE: usize = 64 << 10;

/// Writes a file that is empty from its beginning, with holes where there would be nothing but zeros.
/// It is as long as what was written once it is flushed.
#[derive(Debug)]
pub struct Writer<'a> {
    to: &'a File,
    at: u64,
}

impl<'a> Writer<'a> {
    pub fn new(to: &'a File) -> Self {
        Self { to, at: 0 }
    }
}

impl Write for Writer<'_> {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        // Up to where the next one begins, so that holes fit the blocks of the file system.
        let before = usize::try_from(self.at % PIECE as u64).unwrap_or_default();
        let piece = content.get(..PIECE - before).unwrap_or(content);
        if piece.iter().any(|byte| *byte != 0) {
            self.to.write_all_at(piece, self.at)?;
        }
        self.at += piece.len() as u64;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(ftruncate(self.to, self.at)?)
    }
}

/// Makes `to`, a new file, the same as `from`, holes included. Where the file system can, the two
/// share their blocks until one changes.
pub fn copy(from: &File, to: &File) -> io::Result<()> {
    if ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    let end = u64::try_from(fstat(from)?.st_size).map_err(io::Error::other)?;
    ftruncate(to, end)?;
    each_range(from, end, |begin, end| copy_range(from, to, begin, end))
}

/// Calls `visit` with the beginning and the end of each part of a file, up to `size`, that is no
/// hole.
pub(crate) fn each_range(
    file: impl AsFd,
    size: u64,
    mut visit: impl FnMut(u64, u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut at = 0;
    while at < size {
        let data = match seek(&file, SeekFrom::Data(at)) {
            // Nothing but a hole from here on.
            Err(Errno::NXIO) => break,
            found => found?,
        };
        at = seek(&file, SeekFrom::Hole(data))?.min(size);
        visit(data, at)?;
    }
    Ok(())
}

fn copy_range(from: &File, to: &File, begin: u64, end: u64) -> io::Result<()> {
    let (mut read, mut written) = (begin, begin);
    while read < end {
        let left = usize::try_from(end - read).unwrap_or(usize::MAX);
        if copy_file_range(from, Some(&mut read), to, Some(&mut written), left)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_copy_has_the_same_content_and_the_same_holes() {
        let from = tempfile::tempfile_in("/var/tmp").unwrap();
        from.write_all_at(b"head", 0).unwrap();
        from.write_all_at(b"middle", 40 << 20).unwrap();
        ftruncate(&from, 100 << 20).unwrap();
        let to = tempfile::tempfile_in("/var/tmp").unwrap();
        copy(&from, &to).unwrap();
        let metadata = to.metadata().unwrap();
        assert_eq!(metadata.len(), 100 << 20);
        assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
        for (text, at) in [(b"head\0\0", 0), (b"middle", 40 << 20), (&[0; 6], 70 << 20)] {
            let mut found = [0; 6];
            to.read_exact_at(&mut found, at).unwrap();
            assert_eq!(&found, text);
        }
    }

    #[test]
    fn zeros_that_are_written_are_a_hole() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let mut writer = Writer::new(&file);
        let zeros = vec![0; 1 << 20];
        for piece in [b"head", &zeros[..], b"middle", &zeros, &zeros] {
            writer.write_all(piece).unwrap();
        }
        writer.flush().unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), (3 << 20) + 10);
        assert!(metadata.blocks() * 512 <= 3 * PIECE as u64, "{} blocks", metadata.blocks());
        for (text, at) in [(b"head\0\0", 0), (b"middle", (1 << 20) + 4), (&[0; 6], 2 << 20)] {
            let mut found = [0; 6];
            file.read_exact_at(&mut found, at).unwrap();
            assert_eq!(&found, text);
        }
    }
}
