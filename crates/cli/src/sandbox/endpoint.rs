//! `osb sandbox endpoint`.

use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox
    id: String,
    /// The port on which a service in the sandbox listens; 18080 is that of its policy and its vault
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Print the URL, or the whole answer with its headers as JSON
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
    let endpoint = lifecycle.endpoint(&args.id, args.port).await?;
    match args.output {
        Format::Json => output.json(&endpoint)?,
        Format::Table => {
            output.line(&format!("http://{}", endpoint.endpoint))?;
            for (name, value) in endpoint.headers.iter().flatten() {
                output.say(&format!("requests need the header {name}: {value}"));
            }
        }
    }
    Ok(0)
}
