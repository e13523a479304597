//! `osb file read`.

use crate::{env::Environment, failure::Failure, output::Output, target::Target};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    /// The file, as an absolute path in the sandbox
    path: String,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let execd = args.target.lifecycle(environment)?.execd(&args.id).await?;
    let mut download = execd.download(&args.path).await?;
    while let Some(chunk) = download.next().await? {
        output.data(&chunk)?;
    }
    Ok(0)
}
