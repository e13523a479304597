//! `osb image ls`.

use std::fmt::Write as _;

use jiff::Timestamp;
use opensandbox::{
    Images,
    api::images::{Image, ImageUsage, ListImagesQuery},
};
use osb_core::{Clock, SystemClock};

use super::familiar;
use crate::{
    age,
    env::Environment,
    failure::Failure,
    output::Output,
    size,
    table::Table,
    view::{self, View},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// List images without a name, too, on which nothing stands: steps of builds, for the most part
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    view: View,
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let (mut images, usage) = all(&args.view.lifecycle(environment)?.images()).await?;
    let count = images.len();
    images.retain(|image| args.all || !image.names.is_empty() || image.used_by > 0);
    let hidden = count - images.len();
    let code = args.view.show(&*images, output, |images| table(images, SystemClock.now()))?;
    if args.view.is_for_people() {
        output.say(&summary(usage, hidden));
    }
    Ok(code)
}

/// All images, and what they take together.
async fn all(images: &Images) -> Result<(Vec<Image>, ImageUsage), Failure> {
    let usage = std::cell::Cell::new(ImageUsage::default());
    let all = view::all_pages(async |page| {
        let page = images.list(&ListImagesQuery { page, page_size: view::PAGE_SIZE }).await?;
        usage.set(page.usage);
        Ok((page.items, page.pagination))
    });
    Ok((all.await?, usage.get()))
}

fn table(images: &[Image], now: Timestamp) -> String {
    let mut table = Table::new(["NAME", "DIGEST", "AGE", "SIZE", "FILES", "OWN", "USED BY"]);
    for image in images {
        let names = image.names.iter().map(|name| familiar(name));
        // What has no name goes by its digest.
        let nameless = image.names.is_empty().then(|| image.digest.clone());
        for name in names.chain(nameless) {
            table.row([
                name,
                short(&image.digest).to_owned(),
                image.since.map_or_else(|| "-".to_owned(), |since| age::between(since.0, now)),
                size::of(image.size),
                size::of(image.unpacked),
                size::of(image.own),
                image.used_by.to_string(),
            ]);
        }
    }
    table.render()
}

/// Enough of a digest to tell images apart.
fn short(digest: &str) -> &str {
    let hex = digest.split_once(':').map_or(digest, |(_, hex)| hex);
    hex.get(..12).unwrap_or(hex)
}

fn summary(usage: ImageUsage, hidden: usize) -> String {
    let all = size::of(usage.blobs.saturating_add(usage.layers));
    let mut text = format!("{} images take {all}", usage.images);
    if hidden > 0 {
        write!(text, ", {hidden} of them without a name, which --all lists")
            .expect("writing to a string succeeds");
    }
    if usage.unused > 0 {
        let unused = size::of(usage.unused);
        write!(text, "; `osb image gc` would give {unused} back")
            .expect("writing to a string succeeds");
    }
    text
}

#[cfg(test)]
mod tests {
    use opensandbox::{
        Lifecycle,
        testkit::{ScriptedServer, reply},
    };

    use super::*;

    const ITEM: &str = r#"{"digest":"sha256:0123456789abcdef","names":["docker.io/library/debian:bookworm"],"size":50000000,"unpacked":120000000,"own":170000000,"layers":1,"usedBy":2,"since":"2030-01-01T00:00:00Z","config":{"os":"linux","architecture":"amd64"}}"#;

    #[test]
    fn an_image_is_a_row_for_each_of_its_names() {
        let image: Image = serde_json::from_str(ITEM).unwrap();
        let nameless = Image { names: Vec::new(), since: None, used_by: 0, ..image.clone() };
        assert_eq!(
            table(&[image, nameless], "2030-01-01T00:03:00Z".parse().unwrap()),
            "NAME                     DIGEST        AGE  SIZE   FILES   OWN     USED BY\n\
             debian:bookworm          0123456789ab  3m   50 MB  120 MB  170 MB  2\n\
             sha256:0123456789abcdef  0123456789ab  -    50 MB  120 MB  170 MB  0"
        );
    }

    #[test]
    fn whoever_has_garbage_hears_how_to_be_rid_of_it() {
        let usage = ImageUsage { images: 2, blobs: 1000, layers: 500, shared: 0, unused: 0 };
        assert_eq!(summary(usage, 0), "2 images take 1.5 kB");
        let hidden = "2 images take 1.5 kB, 1 of them without a name, which --all lists";
        assert_eq!(summary(usage, 1), hidden);
        let garbage = ImageUsage { unused: 900, ..usage };
        assert!(summary(garbage, 0).ends_with("`osb image gc` would give 900 B back"));
    }

    #[tokio::test]
    async fn every_page_is_asked_for() {
        let server = ScriptedServer::start(|request| {
            let is_first = request.uri().query().is_some_and(|query| query.contains("page=1&"));
            reply(
                200,
                format!(
                    r#"{{"items":[{ITEM}],"usage":{{"images":2,"blobs":1,"layers":2,"shared":0,"unused":0}},"pagination":{{"page":1,"pageSize":1,"totalItems":2,"totalPages":2,"hasNextPage":{is_first}}}}}"#
                ),
            )
        })
        .await;
        let (images, usage) = all(&Lifecycle::new(server.connection()).images()).await.unwrap();
        assert_eq!((images.len(), usage.images), (2, 2));
    }
}
