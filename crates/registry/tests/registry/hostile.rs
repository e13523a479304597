//! Registries that send too much, too little, too late, or something else.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use osb_core::Chain;
use osb_registry::{Descriptor, Digest, Reference, RegistryError, Settings, media};

use crate::{
    image::{Sample, client, read, repository, settings},
    stranger::{Act, Seen, Stranger, head, reply},
};

const JSON: (&str, &str) = ("content-type", media::OCI_MANIFEST);

async fn manifest(answer: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static) -> RegistryError {
    let stranger = Stranger::start(answer).await;
    repository(&format!("{}/x", stranger.name())).manifest().await.unwrap_err()
}

#[tokio::test]
async fn a_manifest_without_end_is_cut_off() {
    let chunked = ("transfer-encoding", "chunked");
    let error = manifest(move |_| {
        let mut chunk = b"10000\r\n".to_vec();
        chunk.resize(chunk.len() + 0x10000, b' ');
        chunk.extend_from_slice(b"\r\n");
        vec![Act::Send(head("200 OK", &[JSON, chunked])), Act::Repeat(chunk)]
    })
    .await;
    assert!(error.to_string().contains("4194304"), "{error}");
    let error = manifest(|_| {
        let length = ("content-length", "99999999999");
        vec![Act::Send(head("200 OK", &[JSON, length])), Act::Hang]
    })
    .await;
    assert!(matches!(error, RegistryError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn a_manifest_that_is_another_is_not_taken() {
    let sample = Sample::new(1, 10);
    let content = sample.manifest.1.clone();
    let wrong = Digest::of(b"other");
    let header = wrong.to_string();
    let lie = content.clone();
    let error =
        manifest(move |_| reply("200 OK", &[JSON, ("docker-content-digest", &header)], &lie)).await;
    assert!(error.to_string().contains("hashes to"), "{error}");
    let lie = content.clone();
    let error =
        manifest(move |_| reply("200 OK", &[JSON, ("docker-content-digest", "x")], &lie)).await;
    assert!(error.to_string().contains("a digest that is none"), "{error}");
    // By digest nothing but the digest counts.
    let stranger = Stranger::start(move |_| reply("200 OK", &[JSON], &content)).await;
    let reference = Reference::parse(&format!("{}/x", stranger.name())).unwrap().at(wrong);
    let client = client(settings(&[reference.registry()]));
    let repository = client.repository(&reference, None);
    let error = repository.manifest().await.unwrap_err();
    assert!(error.to_string().contains("hashes to"), "{error}");
    let smaller = Descriptor { size: 7, ..sample.manifest.0.clone() };
    let error = repository.manifest_of(&smaller).await.unwrap_err();
    assert!(error.to_string().contains("7 bytes"), "{error}");
    repository.manifest_of(&sample.manifest.0).await.unwrap();
}

#[tokio::test]
async fn indexes_do_not_lead_from_one_to_the_next() {
    let stranger = Stranger::start(|seen| {
        // Each is an index of the next, by a digest that it can only be named with.
        let depth: usize = seen.path.rsplit(':').next().unwrap_or_default().len();
        let sample = Sample::new(1, 10);
        let mut index = sample.index(&["linux/amd64"]);
        for _ in 0..8 {
            let inner = serde_json::json!({
                "schemaVersion": 2, "mediaType": media::OCI_INDEX,
                "manifests": [{
                    "mediaType": media::OCI_INDEX, "digest": index.0.digest, "size": index.0.size,
                    "platform": {"os": "linux", "architecture": "amd64"},
                }],
            })
            .to_string();
            if seen.path.ends_with(index.0.digest.as_str()) {
                break;
            }
            index = (Descriptor::of(media::OCI_INDEX, inner.as_bytes()), inner.into());
        }
        assert!(depth > 0);
        reply("200 OK", &[("content-type", media::OCI_INDEX)], &index.1)
    })
    .await;
    let repository = repository(&format!("{}/x", stranger.name()));
    let wanted = osb_registry::Platform::parse("linux/amd64").unwrap();
    let error = repository.image(&wanted).await.unwrap_err();
    assert!(error.to_string().contains("indexes are of indexes"), "{error}");
    assert!(stranger.seen().len() < 8);
}

async fn blob(
    settings: impl Fn(&mut Settings),
    acts: impl Fn() -> Vec<Act> + Send + Sync + 'static,
) -> Result<bytes::Bytes, RegistryError> {
    let stranger = Stranger::start(move |_| acts()).await;
    let name = stranger.name();
    let mut own = crate::image::settings(&[&name]);
    settings(&mut own);
    let reference = Reference::parse(&format!("{name}/x")).unwrap();
    let wanted = Descriptor::new(media::OCI_LAYER, Digest::of(b"x"), 100_000);
    read(&client(own).repository(&reference, None), &wanted, 0).await
}

#[tokio::test]
async fn a_blob_is_not_longer_than_it_is_said_to_be() {
    let error = blob(|_| {}, || reply("200 OK", &[], vec![0; 100_001])).await.unwrap_err();
    assert!(error.to_string().contains("not as long"), "{error}");
    let error = blob(|_| {}, || reply("200 OK", &[], vec![0; 99_999])).await.unwrap_err();
    assert!(error.to_string().contains("not as long"), "{error}");
    // Of what has no end, not more is taken than was asked for.
    let begin = || head("200 OK", &[("connection", "close")]);
    let read = blob(|_| {}, move || vec![Act::Send(begin()), Act::Repeat(vec![0; 70_000])]).await;
    match read {
        Ok(content) => assert_eq!(content.len(), 100_000),
        Err(error) => assert!(error.to_string().contains("more than 100000 bytes"), "{error}"),
    }
}

#[tokio::test]
async fn whoever_sends_nothing_or_hardly_anything_is_given_up() {
    let impatient = |settings: &mut Settings| {
        settings.stall_timeout = Duration::from_millis(200);
        settings.answer_timeout = Duration::from_millis(300);
    };
    let length = ("content-length", "100000");
    for (acts, expected) in [
        ((|| vec![Act::Hang]) as fn() -> Vec<Act>, "does not answer in time"),
        (
            || vec![Act::Send(head("200 OK", &[("content-length", "100000")])), Act::Hang],
            "nothing more arrives",
        ),
        (
            || {
                let drip = Act::Drip(Duration::from_millis(20));
                vec![Act::Send(head("200 OK", &[("content-length", "100000")])), drip]
            },
            "too slowly",
        ),
    ] {
        let error = blob(impatient, acts).await.unwrap_err();
        assert!(Chain(&error).to_string().contains(expected), "{}", Chain(&error));
        assert!(error.is_transient());
    }
    // The same of a manifest, which is read as a whole.
    let stranger = Stranger::start(move |_| {
        vec![Act::Send(head("200 OK", &[JSON, length])), Act::Drip(Duration::from_millis(20))]
    })
    .await;
    let mut own = settings(&[&stranger.name()]);
    impatient(&mut own);
    let reference = Reference::parse(&format!("{}/x", stranger.name())).unwrap();
    let error = client(own).repository(&reference, None).manifest().await.unwrap_err();
    assert!(Chain(&error).to_string().contains("too slowly"), "{}", Chain(&error));
}

#[tokio::test]
async fn heads_without_end_are_cut_off() {
    let error = manifest(|_| {
        vec![
            Act::Send(b"HTTP/1.1 200 OK\r\n".to_vec()),
            Act::Repeat(b"x: yyyyyyyyyyyyyyyy\r\n".to_vec()),
        ]
    })
    .await;
    assert!(matches!(error, RegistryError::Corrupt { .. }), "{error:?}");
    let error = manifest(|_| {
        vec![Act::Send(b"HTTP/1.1 200 OK\r\nx: ".to_vec()), Act::Repeat(vec![b'y'; 4096])]
    })
    .await;
    assert!(matches!(error, RegistryError::Corrupt { .. }), "{error:?}");
    let error = manifest(|_| vec![Act::Send(b"SSH-2.0-x\r\n\r\n".to_vec()), Act::Close]).await;
    assert!(matches!(error, RegistryError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn busy_registries_are_asked_again_and_not_for_ever() {
    let asked = AtomicUsize::new(0);
    let sample = Sample::new(1, 10);
    let content = sample.manifest.1.clone();
    let stranger = Stranger::start(move |_| match asked.fetch_add(1, Relaxed) {
        0 => reply("429 Too Many Requests", &[("retry-after", "0")], ""),
        1 => vec![Act::Close],
        2 => reply("502 Bad Gateway", &[], "<html>"),
        3 => vec![Act::Send(head("200 OK", &[JSON, ("content-length", "500")])), Act::Close],
        _ => reply("200 OK", &[JSON], &content),
    })
    .await;
    let name = stranger.name();
    let reference = Reference::parse(&format!("{name}/x")).unwrap();
    let own = Settings { tries: 5, ..settings(&[&name]) };
    let found = client(own).repository(&reference, None).manifest().await.unwrap();
    assert_eq!((found.content, stranger.seen().len()), (sample.manifest.1, 5));

    let stranger = Stranger::start(|_| {
        reply("503 Service Unavailable", &[("retry-after", "0")], "down\x1b[2J\r\nfor a while")
    })
    .await;
    let error = repository(&format!("{}/x", stranger.name())).manifest().await.unwrap_err();
    assert!(error.is_transient() && stranger.seen().len() == 2);
    let text = error.to_string();
    assert!(text.contains("503") && text.ends_with("down [2J for a while"), "{text:?}");
}

#[tokio::test]
async fn redirects_end() {
    let error = manifest(|seen| {
        let next = format!("{}x", seen.path);
        reply("307 Temporary Redirect", &[("location", &next)], "")
    })
    .await;
    assert!(error.to_string().contains("from one place to the next"), "{error}");
    for location in ["", "file:///etc/passwd", "gopher://x/", "http://", "http://u:p@127.0.0.1/"] {
        let error = manifest(move |_| reply("302 Found", &[("location", location)], "")).await;
        assert!(error.to_string().contains("where we do not go"), "{location}: {error}");
    }
}
