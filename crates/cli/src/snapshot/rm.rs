//! `osb snapshot rm`.

use crate::{deletion, env::Environment, failure::Failure, output::Output, target::Target};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The snapshots
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.target.lifecycle(environment)?;
    deletion::each(&args.ids, output, async |id: &str| lifecycle.delete_snapshot(id).await).await
}
