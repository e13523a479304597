//! `osb snapshot`: files of sandboxes, kept.

mod create;
mod get;
mod ls;
mod rm;

use crate::{env::Environment, failure::Failure, output::Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Keep the files of a sandbox, and print the id of what is kept
    ///
    /// The sandbox is held still for as long as its files are copied, and then goes on. Start others
    /// with those files by `osb run --snapshot ID` or `osb sandbox create --snapshot ID`.
    Create(create::Args),
    /// List snapshots, newest first
    #[command(visible_alias = "list")]
    Ls(ls::Args),
    /// Show one snapshot
    Get(get::Args),
    /// Delete snapshots; sandboxes that started from them keep their files
    Rm(rm::Args),
}

pub(crate) async fn main(
    command: Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    match command {
        Command::Create(args) => create::main(args, environment, output).await,
        Command::Ls(args) => ls::main(args, environment, output).await,
        Command::Get(args) => get::main(args, environment, output).await,
        Command::Rm(args) => rm::main(args, environment, output).await,
    }
}
