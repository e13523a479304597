//! `osb volume`: storage that the server keeps under names.

mod ls;
mod rm;

use crate::{env::Environment, failure::Failure, output::Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the volumes that the server keeps, by name
    ///
    /// A volume is made when a sandbox first asks for it, as with `osb run --volume NAME:PATH`.
    #[command(visible_alias = "list")]
    Ls(ls::Args),
    /// Delete volumes with everything in them; those that a sandbox uses stay
    Rm(rm::Args),
}

pub(crate) async fn main(
    command: Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    match command {
        Command::Ls(args) => ls::main(args, environment, output).await,
        Command::Rm(args) => rm::main(args, environment, output).await,
    }
}
