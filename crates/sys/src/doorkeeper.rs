//! A process that costs next to nothing and becomes a program when somebody knocks.

use std::{
    ffi::CStr,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::{exec, fork::SingleThread, memory};

/// Waits until a message comes on `channel`, without reading it, and then becomes `program` with
/// the channel and then `handed` as its descriptors 3, 4 and so on. Ends when the other end of the
/// channel closes first.
///
/// To be called in a fresh child: every other descriptor that it has of its parent is closed.
pub fn wait(
    alone: &SingleThread,
    channel: &OwnedFd,
    program: &OwnedFd,
    argv: &[&CStr],
    handed: &[OwnedFd],
) -> ! {
    let mut kept: Vec<RawFd> = [channel, program].iter().map(|fd| fd.as_raw_fd()).collect();
    kept.extend(handed.iter().map(AsRawFd::as_raw_fd));
    exec::close_all_but(alone, &mut kept);
    memory::give_back();
    loop {
        let mut waiting = [PollFd::new(channel, PollFlags::IN)];
        match poll(&mut waiting, None) {
            Ok(_) if waiting.iter().any(|fd| fd.revents().contains(PollFlags::IN)) => break,
            Ok(_) => exec::exit_now(0),
            Err(Errno::INTR) => {}
            Err(_) => exec::exit_now(1),
        }
    }
    let mut passed = vec![channel.as_fd()];
    passed.extend(handed.iter().map(AsFd::as_fd));
    // Whoever knocked sees the channel close.
    drop(exec::exec_fd(alone, program.as_fd(), argv, &passed));
    exec::exit_now(1)
}
