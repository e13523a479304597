//! Becoming another program.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
};

use crate::fork::SingleThread;

/// Replaces this process by the program behind `program`, with an empty environment and with
/// `handed` as its descriptors 3, 4 and so on; of the others it has only the standard three.
///
/// Returns only if that failed. The caller then owns no descriptor below `3 + handed.len()` but
/// the standard ones, so all that it still needs must lie above.
pub fn exec_fd(
    _alone: &SingleThread,
    program: BorrowedFd<'_>,
    argv: &[&CStr],
    handed: &[BorrowedFd<'_>],
) -> io::Error {
    let mut next = 3;
    let above = 3 + i32::try_from(handed.len()).unwrap_or(i32::MAX - 3);
    if handed.iter().chain([&program]).any(|fd| fd.as_raw_fd() < above) {
        return io::Error::other("a descriptor lies where another one must go");
    }
    for fd in handed {
        // SAFETY: `next` is below every descriptor that the caller still uses, by the contract
        // of this function, and no other thread exists that could use it.
        if unsafe { libc::dup2(fd.as_raw_fd(), next) } == -1 {
            return io::Error::last_os_error();
        }
        next += 1;
    }
    if let Err(error) = close_on_exec_from(next.unsigned_abs()) {
        return error;
    }
    let mut pointers: Vec<*const libc::c_char> = argv.iter().map(|arg| arg.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let environment: [*const libc::c_char; 1] = [std::ptr::null()];
    // SAFETY: both arrays end in a null pointer and, like the strings they point to, live until
    // the kernel has copied them or failed.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            pointers.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Ends this process at once, running no exit handlers: those belong to the process it was forked
/// from.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` only ends the process; nothing after it can observe a broken invariant.
    unsafe { libc::_exit(code) }
}

/// Gives this process a keyring of its own, in place of the one that it inherited. Where the kernel
/// has no keyrings, or lets nobody use them, there is nothing to leave.
pub fn join_new_session_keyring(_alone: &SingleThread) -> io::Result<()> {
    let anonymous = std::ptr::null::<libc::c_char>();
    // SAFETY: a null name asks for a keyring without one; the kernel follows no pointer.
    let keyring =
        unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, anonymous) };
    match io::Error::last_os_error() {
        _ if keyring != -1 => Ok(()),
        error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => Ok(()),
        error => Err(error),
    }
}

/// Closes every descriptor, in a forked child that uses none: neither it nor anybody else may
/// touch one afterwards, since a new one could have its number.
pub(crate) fn close_all(_alone: &SingleThread) {
    // SAFETY: the one caller is a fresh child that only waits for its end from here on, so no
    // owner of a closed descriptor ever runs, not even to drop it.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
}

/// Closes every descriptor but the standard three and those in `kept`, in a forked child that never
/// returns to the code that owns the others.
pub(crate) fn close_all_but(_alone: &SingleThread, kept: &mut [RawFd]) {
    kept.sort_unstable();
    let mut first: u32 = 3;
    let ends = kept.iter().map(|fd| fd.unsigned_abs()).chain([u32::MAX]);
    for end in ends {
        if let Some(last) = end.checked_sub(1)
            && last >= first
        {
            // SAFETY: the one caller is a fresh child that ends or becomes another program without
            // ever running, or dropping, what owns a closed descriptor.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        first = first.max(end.saturating_add(1));
    }
}

/// Marks every descriptor from `first` on to be closed when this process becomes another program.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: with CLOSE_RANGE_CLOEXEC the call closes nothing, so no descriptor that safe code
    // owns becomes invalid.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
