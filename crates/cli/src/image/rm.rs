//! `osb image rm`.

use crate::{deletion, env::Environment, failure::Failure, output::Output, target::Target};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names; or digests, to take all names of an image away
    #[arg(required = true, value_name = "IMAGE")]
    names: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let images = args.target.lifecycle(environment)?.images();
    deletion::each(&args.names, output, async |name: &str| images.remove(name).await).await
}
