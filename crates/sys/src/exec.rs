//! Becoming another program.

use std::{ffi::CStr, io, os::fd::AsRawFd, os::fd::BorrowedFd};

/// Replaces this process by the program behind `program`, with an empty environment. Returns only
/// if that failed.
pub fn exec_fd(program: BorrowedFd<'_>, argv: &[&CStr]) -> io::Error {
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

/// Marks every descriptor from `first` on to be closed when this process becomes another program.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: with CLOSE_RANGE_CLOEXEC the call closes nothing, so no descriptor that safe code
    // owns becomes invalid.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
