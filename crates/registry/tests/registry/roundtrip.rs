//! Images go to a real registry and come back.

use std::process::Stdio;

use osb_core::{Chain, testkit::required};
use osb_registry::{
    Descriptor, Name, Platform, Pushed, RegistryError, Settings, Transport, media,
    testkit::{Kind, Registry, login},
};
use osb_sys::{command::command, fs};

use crate::image::{self, Sample, at, push, push_from, read};

#[tokio::test]
async fn what_is_pushed_is_pulled_from_every_kind_of_registry() {
    for kind in [Kind::Open, Kind::Login, Kind::TlsAndLogin] {
        let Some(registry) = Registry::start(kind).await else { return };
        let repository = at(&registry, "a/sample:1", Some(login()));
        let sample = Sample::new(3, 300_000);
        sample.push(&repository).await.unwrap();

        assert_eq!(repository.resolve().await.unwrap(), sample.manifest.0, "{kind:?}");
        let found = repository.image(&Platform::host()).await.unwrap();
        assert_eq!((&found.descriptor, &found.content), (&sample.manifest.0, &sample.manifest.1));
        assert_eq!((&found.named, found.indexes.len()), (&sample.manifest.0, 0));
        assert_eq!(found.manifest.config, sample.config.0);
        for (blob, content) in sample.blobs() {
            assert_eq!(read(&repository, blob, 0).await.unwrap(), content);
            let rest = read(&repository, blob, blob.size - 10).await.unwrap();
            assert_eq!(rest, content[content.len() - 10..]);
            assert_eq!(repository.small_blob(blob, 1 << 20).await.unwrap(), content);
        }
        // By its digest alone, too.
        let by_digest = registry.reference("a/sample").at(sample.manifest.0.digest.clone());
        let by_digest = image::client(registry.settings()).repository(&by_digest, Some(login()));
        assert_eq!(by_digest.manifest().await.unwrap().content, sample.manifest.1);
    }
}

#[tokio::test]
async fn content_is_sent_once_and_mounted_elsewhere() {
    let Some(registry) = Registry::start(Kind::Open).await else { return };
    let sample = Sample::new(1, 2_000_000);
    let (one, other) = (at(&registry, "one", None), at(&registry, "other", None));
    let (blob, content) = &sample.layers[0];
    assert!(!one.has_blob(blob).await.unwrap());
    assert_eq!(push(&one, blob, content).await.unwrap(), Pushed::Sent);
    assert_eq!(push(&one, blob, content).await.unwrap(), Pushed::Already);
    assert_eq!(push_from(&other, blob, content, Some("one")).await.unwrap(), Pushed::Mounted);
    let (config, content) = &sample.config;
    assert_eq!(push_from(&other, config, content, Some("one")).await.unwrap(), Pushed::Sent);
    assert!(one.has_blob(blob).await.unwrap() && other.has_blob(config).await.unwrap());
    assert!(!one.has_blob(config).await.unwrap());
    // Nothing is there yet under the name.
    let error = other.push_manifest(&sample.manifest.0, &sample.manifest.1, Name::Tag).await;
    assert!(error.is_ok(), "{error:?}");
    let error = one.push_manifest(&sample.manifest.0, &sample.manifest.1, Name::Tag).await;
    assert!(matches!(error, Err(RegistryError::Refused { .. })), "{error:?}");
}

#[tokio::test]
async fn the_image_for_a_platform_is_taken_out_of_an_index() {
    let Some(registry) = Registry::start(Kind::Open).await else { return };
    let repository = at(&registry, "sample:all", None);
    let sample = Sample::new(1, 100);
    for (blob, content) in sample.blobs() {
        push(&repository, blob, content).await.unwrap();
    }
    let (manifest, content) = &sample.manifest;
    repository.push_manifest(manifest, content, Name::Digest).await.unwrap();
    let (index, content) = sample.index(&["linux/arm/v6", "linux/s390x"]);
    repository.push_manifest(&index, &content, Name::Tag).await.unwrap();

    let found = repository.image(&Platform::parse("linux/arm/v7").unwrap()).await.unwrap();
    assert_eq!((&found.descriptor.digest, &found.named), (&manifest.digest, &index));
    assert_eq!(found.indexes[0].content, content);
    let error = repository.image(&Platform::parse("linux/riscv64").unwrap()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("linux/riscv64; it is for: linux/arm/v6, linux/s390x"), "{text}");
}

#[tokio::test]
async fn a_login_is_asked_for_where_one_is_needed() {
    let Some(registry) = Registry::start(Kind::Login).await else { return };
    let sample = Sample::new(1, 100);
    sample.push(&at(&registry, "private", Some(login()))).await.unwrap();
    let error = at(&registry, "private", None).resolve().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("give a login") && text.contains("private"), "{text}");
    let wrong = osb_registry::Login { password: "hunter2".into(), ..login() };
    let error = at(&registry, "private", Some(wrong)).manifest().await.unwrap_err();
    let text = format!("{} {error:?}", Chain(&error));
    assert!(text.contains("not enough") && !text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn logins_of_docker_are_found_and_go_to_their_registry_alone() {
    let Some(registry) = Registry::start(Kind::Login).await else { return };
    let Some(other) = Registry::start(Kind::Login).await else { return };
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.json");
    // `me:secret`, as `docker login` writes it.
    let entry = format!(r#"{{"auths": {{"{}": {{"auth": "bWU6c2VjcmV0"}}}}}}"#, registry.name());
    fs::write(&config, entry).unwrap();
    let client = |registry: &Registry| {
        let mut settings = registry.settings();
        settings.logins.config = Some(config.clone());
        image::client(settings)
    };
    let sample = Sample::new(1, 100);
    sample.push(&client(&registry).repository(&registry.reference("x"), None)).await.unwrap();
    let denied = client(&other).repository(&other.reference("x"), None).resolve().await;
    assert!(matches!(denied, Err(RegistryError::Denied { .. })), "{denied:?}");
}

#[tokio::test]
async fn a_registry_is_believed_only_by_its_authority() {
    let Some(registry) = Registry::start(Kind::TlsAndLogin).await else { return };
    let reference = registry.reference("x");
    let resolve = async |settings: Settings| {
        image::client(settings).repository(&reference, Some(login())).resolve().await.unwrap_err()
    };
    let without = |settings: &mut Settings| {
        for registry in settings.registries.values_mut() {
            registry.transport = Transport::default();
        }
    };
    let mut unknown = registry.settings();
    without(&mut unknown);
    let error = resolve(unknown.clone()).await;
    assert!(matches!(error, RegistryError::Unreachable { .. }) && !error.is_transient());
    assert!(Chain(&error).to_string().contains("TLS"), "{}", Chain(&error));
    // By the operator's authorities as well.
    unknown.extra_ca.clone_from(&registry.ca);
    assert!(matches!(resolve(unknown).await, RegistryError::Unknown { .. }));
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let Some(registry) = Registry::start(Kind::Open).await else { return };
    let error = at(&registry, "no/such:thing", None).manifest().await.unwrap_err();
    assert!(error.to_string().contains("no/such:thing"), "{error}");
    let repository = at(&registry, "no/such", None);
    let blob = Descriptor::of(media::OCI_LAYER, b"nothing");
    let error = read(&repository, &blob, 0).await.unwrap_err();
    assert!(error.to_string().contains(blob.digest.as_str()), "{error}");
}

#[tokio::test]
async fn other_programs_read_what_we_push_and_the_other_way_round() {
    let Some(registry) = Registry::start(Kind::Open).await else { return };
    let skopeo = "/usr/bin/skopeo";
    if !required("skopeo", std::path::Path::new(skopeo).exists()) {
        return;
    }
    let sample = Sample::new(2, 100_000);
    sample.push(&at(&registry, "ours", None)).await.unwrap();
    let url = |rest: &str| format!("docker://{}", registry.reference(rest));
    let copied = command(skopeo)
        .args([
            "--insecure-policy",
            "copy",
            "--preserve-digests",
            "--src-tls-verify=false",
            "--dest-tls-verify=false",
        ])
        .args([url("ours"), url("theirs:new")])
        .env("HOME", "/nonexistent")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(copied.success());
    let theirs = at(&registry, "theirs:new", None);
    let found = theirs.image(&Platform::host()).await.unwrap();
    assert_eq!(found.content, sample.manifest.1);
    for (blob, content) in sample.blobs() {
        assert_eq!(read(&theirs, blob, 0).await.unwrap(), content);
    }
}
