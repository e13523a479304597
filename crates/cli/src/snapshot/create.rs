//! `osb snapshot create`.

use opensandbox::api::lifecycle::CreateSnapshotRequest;

use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox, running or paused
    #[arg(value_name = "SANDBOX")]
    sandbox: String,
    /// A name for people; several snapshots may share it
    #[arg(short, long)]
    name: Option<String>,
    /// Print the id, or the whole snapshot as JSON
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.target.lifecycle(environment)?;
    let request = CreateSnapshotRequest { name: args.name };
    let snapshot = lifecycle.create_snapshot(&args.sandbox, &request).await?;
    match args.output {
        Format::Table => output.line(&snapshot.id)?,
        Format::Json => output.json(&snapshot)?,
    }
    if snapshot.status.state != "Ready" {
        let id = &snapshot.id;
        output.say(&format!("the snapshot is still being taken: see osb snapshot get {id}"));
    }
    Ok(0)
}
