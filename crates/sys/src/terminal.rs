//! Terminals for programs.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{Gid, OFlags, Uid, fchown, fcntl_setfl},
    process::Pid,
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcgetpgrp, tcsetwinsize},
};

use crate::identity::Identity;

/// How much a terminal shows, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub cols: u16,
    pub rows: u16,
}

/// The two ends of a new terminal.
#[derive(Debug)]
pub struct Terminal {
    /// Ours: what the program prints is read here. It never blocks.
    pub controller: OwnedFd,
    /// The program's, to be given away as [`Streams::Terminal`](crate::spawn::Streams::Terminal).
    pub program: OwnedFd,
}

/// Makes a terminal. With an identity it belongs to that user, who may then open it by name.
pub fn open(size: Size, owner: Option<&Identity>) -> io::Result<Terminal> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = openpt(flags)?;
    unlockpt(&controller)?;
    // By descriptor and not by name: the names are those of a file system that anybody may have
    // mounted over.
    let program = ioctl_tiocgptpeer(&controller, flags)?;
    if let Some(Identity { uid, gid, .. }) = owner {
        fchown(&program, Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)))?;
    }
    resize(&controller, size)?;
    fcntl_setfl(&controller, OFlags::RDWR | OFlags::NONBLOCK)?;
    Ok(Terminal { controller, program })
}

/// Tells the programs in a terminal that its size has changed.
pub fn resize(controller: impl AsFd, size: Size) -> io::Result<()> {
    let size = Winsize { ws_col: size.cols, ws_row: size.rows, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(controller, size)?)
}

/// The process group that a terminal talks to at this moment.
pub fn foreground(controller: impl AsFd) -> io::Result<Pid> {
    Ok(tcgetpgrp(controller)?)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read, sync::atomic::AtomicI32};

    use rustix::process::{WaitOptions, waitpid};

    use super::*;
    use crate::spawn::{Candidate, Program, Streams, spawn};

    #[test]
    fn a_program_finds_itself_in_a_terminal_of_the_given_size() {
        let Terminal { controller, program } = open(Size { cols: 97, rows: 31 }, None).unwrap();
        let shell = Program {
            candidates: vec![Candidate { path: c"/bin/sh".into(), name: c"sh".into() }],
            arguments: vec![c"-c".into(), c"stty size; exec < /dev/tty && echo controlled".into()],
            variables: vec![c"PATH=/usr/bin:/bin".into()],
            directory: c"/".into(),
            identity: None,
        };
        let streams = Streams::Terminal(program.as_fd());
        let child = spawn(&shell, streams, &AtomicI32::new(0)).unwrap();
        drop(program);
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
        let mut said = Vec::new();
        // It ends in an error: that is how the kernel says that the other end is closed.
        File::from(controller).read_to_end(&mut said).unwrap_err();
        assert_eq!(String::from_utf8(said).unwrap(), "31 97\r\ncontrolled\r\n");
    }
}
