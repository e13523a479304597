//! Mirrors are asked first, and trusted with nothing.

use osb_registry::{
    Descriptor, Origin, Platform, Reference, RegistrySettings, Repository, Settings, Transport,
    testkit::{Kind, Registry, login},
};

use crate::{
    image::{self, Sample, at, read, settings},
    stranger::{Seen, Stranger, reply},
};

/// `docker.io`, of which there is a mirror here and nothing else.
fn hub(mirrors: &[String]) -> RegistrySettings {
    let mirrors = mirrors.iter().map(|it| Origin::parse(&format!("http://{it}")).unwrap());
    RegistrySettings { mirrors: mirrors.collect(), ..RegistrySettings::default() }
}

#[tokio::test]
async fn an_image_of_another_registry_comes_from_the_mirror() {
    let Some(mirror) = Registry::start(Kind::Open).await else { return };
    let sample = Sample::new(2, 50_000);
    sample.push(&at(&mirror, "library/sample:1", None)).await.unwrap();
    // The first one is not there at all.
    let absent = Stranger::start(|_| reply("500 Broken", &[], "")).await;
    let registries = [("docker.io".to_owned(), hub(&[absent.name(), mirror.name()]))];
    let client = image::client(Settings { registries: registries.into(), ..settings(&[]) });
    let reference = Reference::parse("sample:1").unwrap();
    let repository = client.repository(&reference, Some(login()));
    assert_eq!(repository.resolve().await.unwrap(), sample.manifest.0);
    assert_eq!(repository.image(&Platform::host()).await.unwrap().content, sample.manifest.1);
    for (blob, content) in sample.blobs() {
        assert_eq!(read(&repository, blob, 0).await.unwrap(), content);
    }
    // A login for the registry is not for its mirrors, and who does not help is not asked again.
    assert_eq!(absent.seen().len(), 1);
    assert_eq!(absent.seen()[0].header("authorization"), None);
}

/// A registry with a mirror, for one blob.
fn mirrored(mirror: &Stranger, registry: &Stranger) -> Repository {
    let name = registry.name();
    let own = RegistrySettings { transport: Transport::Plain, ..hub(&[mirror.name()]) };
    let settings = Settings { registries: [(name.clone(), own)].into(), ..settings(&[]) };
    let reference = Reference::parse(&format!("{name}/x")).unwrap();
    image::client(settings).repository(&reference, Some(login()))
}

#[tokio::test]
async fn what_a_mirror_does_not_have_comes_from_the_registry() {
    let content = b"some content".to_vec();
    let wanted = Descriptor::of("a/b", &content);
    for broken in [
        (|_| reply("404 Not Found", &[], "")) as fn(&Seen) -> _,
        |_| reply("200 OK", &[], "some more"),
        |_| reply("200 OK", &[], "some_content"),
        |_| {
            let challenge = [("www-authenticate", "Basic realm=\"x\"")];
            reply("401 Unauthorized", &challenge, "")
        },
    ] {
        let mirror = Stranger::start(broken).await;
        let content = content.clone();
        let registry = Stranger::start(move |_| reply("200 OK", &[], &content)).await;
        let repository = mirrored(&mirror, &registry);
        let found = repository.small_blob(&wanted, 1000).await.unwrap();
        assert_eq!(found, "some content");
        assert_eq!((mirror.seen().len(), registry.seen().len()), (1, 1));
        assert_eq!(mirror.seen()[0].header("authorization"), None);
    }
}
