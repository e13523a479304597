//! `osb sandbox endpoint`.

use osb_core::{Clock, SystemClock};

use crate::{
    env::Environment,
    failure::Failure,
    lifetime::Lifetime,
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
    /// Have the URL signed, so that whoever has it may use the port for this long, as in 90s, 10m or 1h30m
    #[arg(long, value_name = "TIME")]
    expires: Option<Lifetime>,
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
    let endpoint = match args.expires {
        None => lifecycle.endpoint(&args.id, args.port).await?,
        Some(time) => {
            let end = SystemClock.now().checked_add(time.duration());
            let end = end.map_err(|error| Failure::Usage(error.to_string()))?;
            lifecycle.signed_endpoint(&args.id, args.port, end.as_second()).await?
        }
    };
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
