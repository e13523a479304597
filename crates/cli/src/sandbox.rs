//! `osb sandbox`: sandboxes by name.

mod create;
mod endpoint;
mod exec;
mod get;
mod logs;
mod ls;
mod pause;
mod renew;
mod rm;
mod stats;

use crate::{env::Environment, failure::Failure, output::Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a sandbox, wait until it is ready, and print its id
    Create(Box<create::Args>),
    /// List sandboxes, newest first
    #[command(visible_alias = "list")]
    Ls(ls::Args),
    /// Show one sandbox
    Get(get::Args),
    /// Show what sandboxes use
    Stats(stats::Args),
    /// Print what the entrypoint of a sandbox printed
    ///
    /// Also when the sandbox is paused or over, until it is removed.
    Logs(logs::LogsArgs),
    /// Print what happened to a sandbox
    Events(logs::EventsArgs),
    /// Remove sandboxes
    #[command(visible_alias = "kill")]
    Rm(rm::Args),
    /// Run a command in a sandbox
    ///
    /// Output appears as it is written, line by line. An interrupt asks execd to stop the command,
    /// and leaves the sandbox; a second one does not wait for that.
    Exec(exec::Args),
    /// Print where a port of a sandbox can be reached
    Endpoint(endpoint::Args),
    /// Move a sandbox's end
    Renew(renew::Args),
    /// Stop a sandbox with its memory kept
    Pause(pause::Args),
    /// Let a paused sandbox go on
    Resume(pause::Args),
}

pub(crate) async fn main(
    command: Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    match command {
        Command::Create(args) => create::main(*args, environment, output).await,
        Command::Ls(args) => ls::main(args, environment, output).await,
        Command::Get(args) => get::main(args, environment, output).await,
        Command::Stats(args) => stats::main(args, environment, output).await,
        Command::Logs(args) => logs::logs(args, environment, output).await,
        Command::Events(args) => logs::events(args, environment, output).await,
        Command::Rm(args) => rm::main(args, environment, output).await,
        Command::Exec(args) => exec::main(args, environment, output).await,
        Command::Endpoint(args) => endpoint::main(args, environment, output).await,
        Command::Renew(args) => renew::main(args, environment, output).await,
        Command::Pause(args) => pause::pause(args, environment).await,
        Command::Resume(args) => pause::resume(args, environment).await,
    }
}
