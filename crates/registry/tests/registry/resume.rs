//! Blobs arrive whole although connections break.

use osb_registry::{Descriptor, Digest, Reference, RegistryError, Settings, media};

use crate::{
    image::{client, read, settings},
    stranger::{Act, Seen, Stranger, head, reply},
};

const SIZE: usize = 400_000;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 7).to_le_bytes()[0]).collect()
}

fn wanted() -> Descriptor {
    Descriptor::of(media::OCI_LAYER, &content())
}

/// Where a request wants to begin.
fn from(seen: &Seen) -> Option<usize> {
    let range = seen.header("range")?;
    range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

fn beginning(most: usize) -> Vec<Act> {
    let head = head("200 OK", &[("content-length", &SIZE.to_string())]);
    let body = content().into_iter().take(most).collect();
    vec![Act::Send(head), Act::Send(body), Act::Close]
}

fn partial(from: usize, most: usize) -> Vec<Act> {
    let all = content();
    let range = format!("bytes {from}-{}/{SIZE}", SIZE - 1);
    let length = (SIZE - from).to_string();
    let headers = [("content-range", range.as_str()), ("content-length", &length)];
    let body = all.into_iter().skip(from).take(most).collect();
    let head = head("206 Partial Content", &headers);
    vec![Act::Send(head), Act::Send(body), Act::Close]
}

async fn pull(stranger: &Stranger, offset: u64) -> Result<bytes::Bytes, RegistryError> {
    let name = stranger.name();
    let own = Settings { tries: 3, ..settings(&[&name]) };
    let reference = Reference::parse(&format!("{name}/x")).unwrap();
    read(&client(own).repository(&reference, None), &wanted(), offset).await
}

#[tokio::test]
async fn each_connection_brings_what_the_last_one_did_not() {
    // More connections than there are tries, all of which get somewhere.
    let stranger = Stranger::start(|seen| {
        from(seen).map_or_else(|| beginning(70_000), |from| partial(from, 80_000))
    })
    .await;
    assert_eq!(pull(&stranger, 0).await.unwrap(), content());
    let begun: Vec<_> = stranger.seen().iter().map(from).collect();
    assert_eq!(begun.len(), 6);
    assert!(begun.is_sorted() && begun[0].is_none() && begun[1].is_some(), "{begun:?}");
}

#[tokio::test]
async fn what_is_there_is_not_asked_for() {
    let stranger = Stranger::start(|seen| partial(from(seen).unwrap(), SIZE)).await;
    assert_eq!(pull(&stranger, 123_456).await.unwrap(), content()[123_456..]);
    assert!(pull(&stranger, SIZE as u64).await.unwrap().is_empty());
    assert_eq!(stranger.seen().len(), 1);
}

#[tokio::test]
async fn registries_that_begin_elsewhere_are_read_from_the_beginning() {
    for confused in [
        // As if nothing had been said of a part.
        (|_| reply("200 OK", &[], content())) as fn(&Seen) -> Vec<Act>,
        |seen| match from(seen) {
            Some(_) => partial(0, SIZE),
            None => reply("200 OK", &[], content()),
        },
        |seen| match from(seen) {
            Some(from) => partial(from + 1, SIZE),
            None => reply("200 OK", &[], content()),
        },
        |seen| match from(seen) {
            Some(_) => reply("416 Range Not Satisfiable", &[], ""),
            None => reply("200 OK", &[], content()),
        },
        |seen| match from(seen) {
            Some(_) => reply("206 Partial Content", &[("content-range", "bytes x")], "y"),
            None => reply("200 OK", &[], content()),
        },
    ] {
        let stranger = Stranger::start(confused).await;
        assert_eq!(pull(&stranger, 100_000).await.unwrap(), content()[100_000..]);
        assert!(stranger.seen().len() <= 2);
    }
}

#[tokio::test]
async fn connections_that_bring_hardly_anything_are_given_up() {
    let stranger =
        Stranger::start(|seen| from(seen).map_or_else(|| beginning(0), |from| partial(from, 10)))
            .await;
    let error = pull(&stranger, 0).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error:?}");
    assert_eq!(stranger.seen().len(), 3);
}

#[tokio::test]
async fn a_small_blob_with_other_content_is_refused() {
    let stranger = Stranger::start(|_| reply("200 OK", &[], "abd")).await;
    let name = stranger.name();
    let reference = Reference::parse(&format!("{name}/x")).unwrap();
    let repository = client(settings(&[&name])).repository(&reference, None);
    let wanted = Descriptor::of(media::OCI_CONFIG, b"abc");
    let error = repository.small_blob(&wanted, 10).await.unwrap_err();
    assert!(error.to_string().contains("does not hash"), "{error}");
    let right = Descriptor { digest: Digest::of(b"abd"), ..wanted.clone() };
    assert_eq!(repository.small_blob(&right, 10).await.unwrap(), "abd");
    let error = repository.small_blob(&wanted, 2).await.unwrap_err();
    assert!(error.to_string().contains("more than 2 bytes"), "{error}");
}
