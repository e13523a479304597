//! Runs a program as root of a user namespace, as the server of a user who is not root has one.
//!
//! `osb-rootless DATA_DIRECTORY PROGRAM [ARGUMENTS…]`

use std::{os::unix::process::CommandExt, path::Path, process::ExitCode};

#[expect(clippy::print_stderr, reason = "there is nobody else to tell")]
fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(data_dir), Some(program)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: osb-rootless DATA_DIRECTORY PROGRAM [ARGUMENTS...]");
        return ExitCode::from(2);
    };
    if let Err(obstacle) = osb_native::become_root(Path::new(&data_dir)) {
        eprintln!("osb-rootless: {obstacle}");
        return ExitCode::FAILURE;
    }
    let mut command = osb_sys::command::command(program);
    let error = command.args(arguments).envs(std::env::vars_os()).exec();
    eprintln!("osb-rootless: {error}");
    ExitCode::FAILURE
}
