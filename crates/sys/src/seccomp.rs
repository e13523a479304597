//! System calls that a process and all it starts give up for good.

mod calls;
mod program;
mod rules;
#[cfg(test)]
mod tests;

use std::io;

use crate::fork::SingleThread;
use program::Instruction;
use rules::Rules;

const SANDBOX: &str = include_str!("seccomp/sandbox.calls");
const HOST_FILES: &str = include_str!("seccomp/host-files.calls");
const ISOLATOR: &str = include_str!("seccomp/isolator.calls");

/// A filter, ready to be installed.
#[derive(Clone)]
pub struct Filter {
    program: Vec<Instruction>,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter of {} instructions", self.program.len())
    }
}

impl Filter {
    /// What every sandbox has: the calls of `seccomp/sandbox.calls` and no others.
    pub fn for_sandboxes() -> io::Result<Self> {
        Self::new(&Rules::default().read(SANDBOX)?)
    }

    /// What a sandbox has that may change files of the host: it makes none that gives powers to
    /// those who run it there.
    pub fn for_sandboxes_on_host_files() -> io::Result<Self> {
        Self::new(&Rules::default().read(SANDBOX)?.read(HOST_FILES)?)
    }

    /// What the isolator has, who makes the views of isolated sessions.
    pub fn for_isolators() -> io::Result<Self> {
        Self::new(&Rules::default().read(SANDBOX)?.read(ISOLATOR)?)
    }

    fn new(rules: &Rules) -> io::Result<Self> {
        Ok(Self { program: program::compile(rules)? })
    }

    /// Puts the filter on this process, which must have forbidden itself new privileges. There is no
    /// way back.
    pub fn install(&self, _alone: &SingleThread) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: u16::try_from(self.program.len()).map_err(io::Error::other)?,
            filter: self.program.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel copies the program, whose length is the true one, and changes nothing.
        let result = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0_u32,
                &raw const program,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
