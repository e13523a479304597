//! `osb environment`: images whose recipes come with `osb`.

mod build;
mod ls;
mod recipes;

use crate::{
    env::Environment,
    failure::Failure,
    output::Output,
    signals::{Interrupts as _, Signals},
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List environments, and say which of them are built
    #[command(visible_alias = "list")]
    Ls(ls::Args),
    /// Build environments on the server, and print the names of their images
    ///
    /// They begin with debian:bookworm. If the server does not have that image, it is made from
    /// packages first, as `osb image bootstrap debian:bookworm` does.
    #[command(after_help = EXAMPLES)]
    Build(build::Args),
}

const EXAMPLES: &str = "\
Examples:
  osb environment build code-interpreter
  osb environment build base --build-arg PIP_INDEX_URL=https://pypi.corp.example/simple";

pub(crate) async fn main(
    command: Command,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let work = async {
        match command {
            Command::Ls(args) => ls::main(args, environment, output).await,
            Command::Build(args) => build::main(args, environment, output).await,
        }
    };
    tokio::select! {
        done = Box::pin(work) => done,
        signal = signals.next() => Ok(signal.exit_code()),
    }
}
