//! Copies of files that are mostly holes.

use std::{fs::File, io, os::fd::AsFd};

use rustix::{
    fs::{SeekFrom, copy_file_range, fstat, ftruncate, ioctl_ficlone, seek},
    io::Errno,
};

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
    use std::os::unix::fs::{FileExt, MetadataExt};

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
}
