//! Files that exist only in memory.

use std::{
    fs::File,
    io::{self, Seek, Write},
};

use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, memfd_create};

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
        rustix::io::Errno::INVAL => memfd_create(name, flags),
        error => Err(error),
    })?;
    let mut file = File::from(fd);
    file.write_all(content)?;
    fchmod(&file, Mode::XUSR | Mode::XGRP | Mode::XOTH)?;
    fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(file)
}

/// Content that another process reads from the beginning.
pub fn with_content(name: &str, content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}
