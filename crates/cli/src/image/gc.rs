//! `osb image gc`.

use opensandbox::api::images::CollectImagesResponse;

use crate::{
    env::Environment,
    failure::Failure,
    output::Output,
    size,
    view::{self, View},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also what is kept of builds: the next one does everything anew
    #[arg(long)]
    builds: bool,
    #[command(flatten)]
    view: View,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let lifecycle = args.view.lifecycle(environment)?;
    let images = lifecycle.images();
    if args.builds {
        images.forget_builds().await?;
    }
    let collected = images.collect().await?;
    args.view.show(&collected, output, describe)
}

fn describe(collected: &CollectImagesResponse) -> String {
    view::describe([
        ("images", collected.images.to_string()),
        ("layers", collected.layers.to_string()),
        ("blobs", collected.blobs.to_string()),
        ("freed", size::of(collected.bytes)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_is_counted() {
        let collected = CollectImagesResponse { images: 1, layers: 2, blobs: 3, bytes: 4000 };
        let told = describe(&collected);
        assert_eq!(
            told,
            "images      1\n\
             layers      2\n\
             blobs       3\n\
             freed       4.0 kB"
        );
    }
}
