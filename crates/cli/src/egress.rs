//! `osb egress`: what sandboxes reach, and what they tried.

mod learn;
mod log;

use crate::{env::Environment, failure::Failure, output::Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show what a sandbox tried in the network, and what was decided
    ///
    /// The server keeps the latest 256 different ones of every sandbox.
    Log(log::Args),
    /// Print the policy that would allow what a sandbox tried, and nothing else
    ///
    /// Run the workload once with a policy whose default is to allow, then save what this prints
    /// and use it as the policy from then on. What the sandbox tried at addresses that are guarded
    /// is left out and named: allow it by hand if it is meant.
    Learn(learn::Args),
}

pub(crate) async fn main(
    command: Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    match command {
        Command::Log(args) => log::main(args, environment, output).await,
        Command::Learn(args) => learn::main(args, environment, output).await,
    }
}
