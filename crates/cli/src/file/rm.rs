//! `osb file rm`.

use crate::{env::Environment, failure::Failure, target::Target};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    /// The files, as absolute paths in the sandbox; those that do not exist count as removed
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(args: Args, environment: &Environment) -> Result<u8, Failure> {
    let execd = args.target.lifecycle(environment)?.execd(&args.id).await?;
    execd.delete_files(&args.paths).await?;
    Ok(0)
}
