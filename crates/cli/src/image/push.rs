//! `osb image push`.

use opensandbox::api::images::PushImageRequest;

use super::{login::Login, print};
use crate::{
    env::Environment,
    failure::Failure,
    output::{Format, Output},
    progress::{Detail, Progress},
    target::Target,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The image
    #[arg(value_name = "NAME")]
    name: String,
    /// What the registry is to call it [default: the same]
    #[arg(value_name = "TO")]
    to: Option<String>,
    #[command(flatten)]
    login: Login,
    /// Print the digest, or digest and names as JSON
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
    let request = PushImageRequest { name: args.name, to: args.to, auth: args.login.read()? };
    let images = args.target.lifecycle(environment)?.images();
    let mut events = images.push(&request).await?;
    let image = Progress::new(output, Detail::Some).follow(&mut events).await?;
    print(&image, args.output, output)
}
