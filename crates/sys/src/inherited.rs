//! Descriptors that the parent process left open for this one.

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::exec;

/// One bit for each descriptor number that was given out.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Takes ownership of the descriptor that the parent process passed under this number, and marks
/// it to be closed when another program is executed.
///
/// A number can be taken once. Call this before anything else is opened: a descriptor that the
/// parent did not pass would otherwise be one that somebody here has opened since.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    let bit = u32::try_from(number)
        .ok()
        .and_then(|shift| 1_u64.checked_shl(shift))
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the call only asks the kernel for the flags of a number; it is harmless for any.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if TAKEN.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return Err(io::Error::from(io::ErrorKind::ResourceBusy));
    }
    // SAFETY: the descriptor is open, and the bit above is set by this call alone, so no earlier
    // call has made an owner for this number.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// Marks every descriptor but the first three to be closed when another program is executed, so
/// that what a careless parent left open goes no further.
pub fn keep_to_ourselves() -> io::Result<()> {
    exec::close_on_exec_from(3)
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn a_descriptor_is_taken_once_and_only_if_it_is_open() {
        let (reader, _writer) = io::pipe().unwrap();
        let number = reader.into_raw_fd();
        let fd = take(number).unwrap();
        assert_eq!(take(number).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(fd);
        assert!(take(63).is_err());
        assert!(take(-1).is_err());
        assert!(take(64).is_err());
    }
}
