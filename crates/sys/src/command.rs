//! Starting other programs.

use std::{ffi::OsStr, process::Command};

/// A command with an empty environment. The program should be an absolute path: what runs must
/// not depend on the caller's `PATH`.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the function that the rest of the code calls"
)]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command
}
