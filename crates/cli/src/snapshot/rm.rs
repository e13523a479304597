//! `osb snapshot rm`.

use crate::{env::Environment, failure::Failure, output::Output, target::Target};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The snapshots
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    target: Target,
}

/// Deletes what can be deleted, and fails at the end if something could not.
pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.target.lifecycle(environment)?;
    let mut code = 0;
    for id in &args.ids {
        match lifecycle.delete_snapshot(id).await {
            Ok(()) => output.line(id)?,
            Err(error @ opensandbox::ClientError::Api { .. }) => {
                output.say(&format!("{id}: {error}"));
                code = 1;
            }
            // The next one would not fare better.
            Err(error) => return Err(error.into()),
        }
    }
    Ok(code)
}
