//! `osb sandbox pause` and `osb sandbox resume`.

use crate::{env::Environment, failure::Failure, target::Target};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn pause(args: Args, environment: &Environment) -> Result<u8, Failure> {
    args.target.lifecycle(environment)?.pause(&args.id).await?;
    Ok(0)
}

pub(crate) async fn resume(args: Args, environment: &Environment) -> Result<u8, Failure> {
    args.target.lifecycle(environment)?.resume(&args.id).await?;
    Ok(0)
}
