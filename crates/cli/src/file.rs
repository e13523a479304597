//! `osb file`: files in a sandbox.

mod info;
mod read;
mod rm;
mod write;

use crate::{env::Environment, failure::Failure, output::Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Copy a file of a sandbox to standard output
    #[command(visible_alias = "cat")]
    Read(read::Args),
    /// Write standard input, or a local file, to a file of a sandbox
    Write(write::Args),
    /// Show what is known about files of a sandbox
    Info(info::Args),
    /// Remove files of a sandbox
    Rm(rm::Args),
}

pub(crate) async fn main(
    command: Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    match command {
        Command::Read(args) => read::main(args, environment, output).await,
        Command::Write(args) => write::main(args, environment).await,
        Command::Info(args) => info::main(args, environment, output).await,
        Command::Rm(args) => rm::main(args, environment).await,
    }
}
