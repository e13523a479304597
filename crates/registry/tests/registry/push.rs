//! Pushing to registries that make it hard.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use osb_registry::{Name, Pushed, Reference, RegistryError, Settings, testkit::login};

use crate::{
    image::{Sample, client, push, repository, settings},
    stranger::{Act, Seen, Stranger, head, reply},
};

fn absent() -> Vec<Act> {
    vec![Act::Send(head("404 Not Found", &[("content-length", "0")]))]
}

#[tokio::test]
async fn an_upload_that_breaks_is_begun_again() {
    let attempts = AtomicUsize::new(0);
    let stranger = Stranger::start(move |seen: &Seen| match seen.method.as_str() {
        "HEAD" => absent(),
        "POST" => reply("202 Accepted", &[("location", "/upload?state=1")], ""),
        "PATCH" if attempts.fetch_add(1, Relaxed) == 0 => vec![Act::Close],
        "PATCH" => reply("202 Accepted", &[("location", "/upload?state=2")], ""),
        _ => reply("201 Created", &[], ""),
    })
    .await;
    let sample = Sample::new(1, 700_000);
    let (blob, content) = &sample.layers[0];
    let repository = repository(&format!("{}/x", stranger.name()));
    assert_eq!(push(&repository, blob, content).await.unwrap(), Pushed::Sent);
    let seen = stranger.seen();
    let methods: Vec<_> = seen.iter().map(|it| it.method.as_str()).collect();
    assert_eq!(methods, ["HEAD", "POST", "PATCH", "POST", "PATCH", "PUT"]);
    assert_eq!(seen[4].body, **content);
    let digest = blob.digest.as_str().replace(':', "%3A");
    assert_eq!(seen[5].path, format!("/upload?state=2&digest={digest}"));
}

#[tokio::test]
async fn who_may_not_push_is_told_so() {
    let stranger = Stranger::start(|seen: &Seen| match seen.method.as_str() {
        "HEAD" => absent(),
        _ => reply("403 Forbidden", &[], r#"{"errors":[{"message":"read only"}]}"#),
    })
    .await;
    let sample = Sample::new(1, 10);
    let repository = repository(&format!("{}/x:1", stranger.name()));
    let (blob, content) = &sample.layers[0];
    let (manifest, text) = &sample.manifest;
    for error in [
        push(&repository, blob, content).await.map(drop),
        repository.push_manifest(manifest, text, Name::Tag).await,
    ] {
        let error = error.unwrap_err();
        assert!(matches!(error, RegistryError::Denied { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("push") && text.contains("read only"), "{text}");
    }
}

#[tokio::test]
async fn a_login_does_not_follow_an_upload_to_another_host() {
    let storage = Stranger::start(|seen: &Seen| match seen.method.as_str() {
        "PATCH" => reply("202 Accepted", &[("location", "next")], ""),
        _ => reply("201 Created", &[], ""),
    })
    .await;
    let location = format!("http://{}/a/upload", storage.name());
    let registry = Stranger::start(move |seen: &Seen| {
        match (seen.header("authorization"), seen.method.as_str()) {
            (None, _) => {
                let challenge = ("www-authenticate", "Basic realm=\"x\"");
                let head = head("401 Unauthorized", &[challenge, ("content-length", "0")]);
                vec![Act::Send(head)]
            }
            (_, "HEAD") => absent(),
            _ => reply("202 Accepted", &[("location", &location)], ""),
        }
    })
    .await;
    let sample = Sample::new(1, 10);
    let reference = Reference::parse(&format!("{}/x", registry.name())).unwrap();
    let client = client(Settings { tries: 1, ..settings(&[&registry.name()]) });
    let repository = client.repository(&reference, Some(login()));
    let (blob, content) = &sample.layers[0];
    assert_eq!(push(&repository, blob, content).await.unwrap(), Pushed::Sent);
    let seen = storage.seen();
    assert_eq!(seen.iter().map(|it| it.method.as_str()).collect::<Vec<_>>(), ["PATCH", "PUT"]);
    assert!(seen[1].path.starts_with("/a/next?digest="), "{}", seen[1].path);
    assert!(seen.iter().all(|it| it.header("authorization").is_none()));
}
