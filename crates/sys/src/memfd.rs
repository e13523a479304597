//! Files that exist only in memory.

use std::{
    fs::File,
    io::{self, Seek, Write},
};

use rustix::{
    fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, memfd_create},
    io::Errno,
};

/// A program that nobody can change any more, and that only its mode lets others execute, not
/// read.
///
/// A process that cannot read its own program is not dumpable, and its memory belongs to the user
/// namespace that owns the file (execve(2), `would_dump` in the kernel): if that is the host's,
/// even root in a sandbox can neither trace it nor read its memory or environment.
pub fn sealed_program(name: &str, content: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know EXEC and make every memfd executable.
    let fd = memfd_create(name, flags | MemfdFlags::EXEC).or_else(|error| match error {
        Errno::INVAL => memfd_create(name, flags),
        error => Err(error),
    })?;
    let mut file = File::from(fd);
    file.write_all(content)?;
    fchmod(&file, Mode::XUSR | Mode::XGRP | Mode::XOTH)?;
    seal(&file)?;
    Ok(file)
}

/// Lets nobody change a file any more.
fn seal(file: &File) -> Result<(), Errno> {
    /// How often it is tried. Each time the kernel itself waits for a moment.
    const TRIES: usize = 8;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    for _ in 1..TRIES {
        match fcntl_add_seals(file, seals) {
            // The kernel holds one of the pages, as when it looks for those that nobody uses.
            Err(Errno::BUSY) => {}
            result => return result,
        }
    }
    fcntl_add_seals(file, seals)
}

/// Content that another process reads from the beginning.
pub fn with_content(name: &str, content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}
