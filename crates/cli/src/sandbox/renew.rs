//! `osb sandbox renew`.

use osb_core::{Clock, SystemClock};

use crate::{
    env::Environment, failure::Failure, lifetime::Lifetime, output::Output, target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    /// How long it shall live from now on, such as 90s or 1h
    #[arg(short, long, value_name = "TIME")]
    timeout: Lifetime,
    #[command(flatten)]
    target: Target,
}

/// Prints the new end.
pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.target.lifecycle(environment)?;
    let end = SystemClock
        .now()
        .checked_add(args.timeout.duration())
        .map_err(|error| Failure::Usage(error.to_string()))?;
    output.line(&lifecycle.renew(&args.id, end).await?.to_string())?;
    Ok(0)
}
