//! `osb image tag`.

use opensandbox::api::images::TagImageRequest;

use crate::{env::Environment, failure::Failure, target::Target};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The image, by a name or its digest
    #[arg(value_name = "IMAGE")]
    name: String,
    /// The other name, which is taken from the image that has it
    #[arg(value_name = "NAME")]
    tag: String,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn main(args: Args, environment: &Environment) -> Result<u8, Failure> {
    let request = TagImageRequest { name: args.name, tag: args.tag };
    args.target.lifecycle(environment)?.images().tag(&request).await?;
    Ok(0)
}
