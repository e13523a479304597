//! A sandbox's files as a project of the host's file system.

use std::{io, os::fd::OwnedFd};

use osb_sys::{quota, userns::IdBase};
use rustix::fs::{Mode, openat};

use super::{DIRECTORY, Limit};

/// Keeps what is written to `upper` and `work` from now on within the limit. The project has the
/// number of the sandbox's first user: no other sandbox has it, and hardly anybody else.
pub(super) fn limit(directory: &OwnedFd, base: IdBase, limit: Limit) -> io::Result<()> {
    quota::limit(directory, base.0, limit.bytes, limit.files)?;
    for name in [c"work", c"upper"] {
        quota::join(openat(directory, name, DIRECTORY, Mode::empty())?, base.0)?;
    }
    Ok(())
}
