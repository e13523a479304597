use std::{io::Write as _, path::Path};

use osb_sys::fs;
use serde_json::json;

use super::*;
use crate::{
    ArchiveKind,
    trial::{Shop, Tar, digest},
};

fn layer(name: &str) -> Vec<u8> {
    Tar::new().file(name, name).end()
}

fn names(imported: &[Imported]) -> Vec<String> {
    imported.iter().flat_map(|image| &image.names).map(Reference::familiar).collect()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn config(layers: &[&Vec<u8>]) -> String {
    let diff_ids: Vec<_> = layers.iter().map(|layer| digest(layer)).collect();
    json!({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["sh"]},
           "rootfs": {"type": "layers", "diff_ids": diff_ids}})
    .to_string()
}

fn bytes(tar: Tar, path: &str, content: &[u8]) -> Tar {
    tar.entry(crate::archive::Packed::file(path, content.len() as u64), content)
}

#[test]
fn what_old_dockers_save_is_imported() {
    let Some(shop) = Shop::new() else { return };
    let (low, high) = (layer("low"), layer("high"));
    let config = config(&[&low, &high, &low]);
    let name = format!("{}.json", digest(config.as_bytes()).hex());
    let list = json!([{"Config": name, "RepoTags": ["app:1", "example.com/app:2"],
                       "Layers": ["a/layer.tar", "b/layer.tar", "c/layer.tar"]}]);
    let tar = Tar::new().directory("a/", 0o755).file("a/VERSION", "1.0");
    let tar = bytes(tar, "a/layer.tar", &low);
    let tar = bytes(tar, "b/layer.tar", &high).symlink("c/layer.tar", "../a/layer.tar");
    let tar = tar.file(&name, &config).file("repositories", "{}");
    let archive = tar.file("manifest.json", &list.to_string()).end();
    for archive in [archive.clone(), gzip(&archive)] {
        let imported = shop.images.import(&archive[..], None).unwrap();
        assert_eq!(names(&imported), ["app:1", "example.com/app:2"]);
    }
    let image = shop.find("app:1").unwrap();
    assert_eq!((image.rootfs.layers.len(), image.config.cmd.clone()), (3, vec!["sh".to_owned()]));
    assert!(image.rootfs.layers[1].join("high").exists());
    let missing = list.to_string().replace("c/layer", "d/layer");
    let archive = bytes(Tar::new().file("manifest.json", &missing), "a/layer.tar", &low).end();
    let error = shop.images.import(&archive[..], None).unwrap_err().to_string();
    assert!(error.contains("lacks it"), "{error}");
}

#[test]
fn a_root_file_system_is_an_image_of_one_layer() {
    let Some(shop) = Shop::new() else { return };
    let archive = Tar::new().directory("./", 0o711).file("./etc/os-release", "ID=x").end();
    let name = Reference::parse("rootfs").unwrap();
    let zstd = zstd::stream::encode_all(&archive[..], 1).unwrap();
    for archive in [archive.clone(), gzip(&archive), zstd] {
        let imported = shop.images.import(&archive[..], Some(&name)).unwrap();
        assert_eq!(names(&imported), ["rootfs:latest"]);
        let image = shop.find("rootfs").unwrap();
        assert_eq!(image.digest.as_ref(), Some(&imported[0].digest));
        assert!(image.rootfs.layers[0].join("etc/os-release").exists());
    }
    // All three are one layer.
    assert_eq!(fs::count_entries(shop.path("layers")).unwrap(), 1);
    let unnamed = shop.images.import(&archive[..], None).unwrap();
    assert!(unnamed[0].names.is_empty());
    assert!(shop.images.by_digest(&unnamed[0].digest).is_ok());
}

#[test]
fn no_archive_can_take_the_digest_of_other_content_for_its_name() {
    let Some(shop) = Shop::new() else { return };
    let real = shop.add_named("app:1", &[layer("low")]).digest.unwrap();
    let fake = Tar::new().file("./fake", "x").end();
    let pinned = Reference::parse(&format!("app@{real}")).unwrap();
    let refused = shop.images.import(&fake[..], Some(&pinned));
    assert!(matches!(refused, Err(ImageError::Refused(_))), "{refused:?}");
    let other = format!("other@sha256:{}", "3".repeat(64));
    let low = layer("low");
    let config = config(&[&low]);
    let name = format!("{}.json", digest(config.as_bytes()).hex());
    let tags = json!([pinned.to_string(), other, "app:2"]);
    let list = json!([{"Config": name, "RepoTags": tags, "Layers": ["a.tar"]}]);
    let tar = bytes(Tar::new(), "a.tar", &low).file(&name, &config);
    let archive = tar.file("manifest.json", &list.to_string()).end();
    let imported = shop.images.import(&archive[..], None).unwrap();
    assert_eq!(names(&imported), ["app:2"]);
    assert_eq!(shop.find(&format!("app@{real}")).unwrap().digest, Some(real));
    assert!(shop.find(&other).is_err());
}

#[test]
fn what_is_exported_is_imported_as_the_same_image() {
    let Some(shop) = Shop::new() else { return };
    let image = shop.add_named("app:1", &[layer("low"), layer("high"), layer("low")]);
    let tags = [Reference::parse("app:1").unwrap(), Reference::parse("example.com/app").unwrap()];
    for kind in [ArchiveKind::Oci, ArchiveKind::Docker] {
        let mut archive = Vec::new();
        shop.images.export(&image, kind, &tags, &mut archive).unwrap();
        let other = Shop::new().unwrap();
        let imported = other.images.import(&archive[..], None).unwrap();
        assert_eq!(imported.len(), 1);
        assert_eq!(Some(&imported[0].digest), image.digest.as_ref());
        assert_eq!(names(&imported), ["app:1", "example.com/app:latest"]);
        assert!(other.find("app:1").unwrap().rootfs.layers[1].join("high").exists());
        let mut unnamed = Vec::new();
        shop.images.export(&image, kind, &[], &mut unnamed).unwrap();
        assert!(names(&other.images.import(&unnamed[..], None).unwrap()).is_empty());
    }
    let host = shop.find("host").unwrap();
    let refused = shop.images.export(&host, ArchiveKind::Oci, &[], Vec::new());
    assert!(matches!(refused, Err(ImageError::Refused(_))));
}

#[test]
fn of_several_platforms_that_of_this_machine_is_imported() {
    let Some(shop) = Shop::new() else { return };
    let own = shop.add(&[layer("own")]).unwrap();
    let other = shop.add(&[layer("other")]).unwrap();
    let intake = shop.images.intake();
    let describe = |image: &crate::Image, platform: Platform| {
        let content = intake.document(image.digest.as_ref().unwrap()).unwrap();
        Descriptor { platform: Some(platform), ..Descriptor::of(media::OCI_MANIFEST, &content) }
    };
    let strange = Platform { architecture: "z80".to_owned(), ..Platform::host() };
    let inner = json!({"schemaVersion": 2, "mediaType": media::OCI_INDEX, "manifests":
        [describe(&other, strange.clone()), describe(&own, Platform::host())]});
    let inner = inner.to_string();
    let layout = |index: serde_json::Value| {
        let mut tar = Tar::new().file("oci-layout", "{}").file("index.json", &index.to_string());
        tar = tar.file(&format!("blobs/sha256/{}", digest(inner.as_bytes()).hex()), &inner);
        for path in fs::names(shop.path("blobs/sha256")).unwrap() {
            let content = fs::read(shop.path("blobs/sha256").join(&path)).unwrap();
            tar = bytes(tar, &format!("blobs/sha256/{path}"), &content);
        }
        tar.end()
    };
    let nested = Descriptor::of(media::OCI_INDEX, inner.as_bytes());
    let beside: serde_json::Value = serde_json::from_str(&inner).unwrap();
    let archives = [layout(json!({"schemaVersion": 2, "manifests": [nested]})), layout(beside)];
    for archive in archives {
        let target = Shop::new().unwrap();
        let imported = target.images.import(&archive[..], None).unwrap();
        assert_eq!(imported.len(), 1);
        assert_eq!(Some(&imported[0].digest), own.digest.as_ref());
    }
    let alone = json!({"schemaVersion": 2, "manifests":
        [describe(&other, strange.clone()), describe(&other, strange)]});
    let error = shop.images.import(&layout(alone)[..], None).unwrap_err().to_string();
    assert!(error.contains("no image for linux"), "{error}");
}

#[test]
fn a_directory_is_imported_as_its_archive_is() {
    let Some(shop) = Shop::new() else { return };
    let image = shop.add_named("app", &[layer("low")]);
    let directory = shop.root.path().join("layout");
    fs::create_dir_all(directory.join("blobs/sha256")).unwrap();
    for name in fs::names(shop.path("blobs/sha256")).unwrap() {
        let content = fs::read(shop.path("blobs/sha256").join(&name)).unwrap();
        fs::write(directory.join("blobs/sha256").join(&name), content).unwrap();
    }
    let intake = shop.images.intake();
    let content = intake.document(image.digest.as_ref().unwrap()).unwrap();
    let mut manifest = Descriptor::of(media::OCI_MANIFEST, &content);
    manifest
        .annotations
        .insert("org.opencontainers.image.ref.name".to_owned(), "example.com/x:1".to_owned());
    let index = json!({"schemaVersion": 2, "manifests": [manifest]}).to_string();
    fs::write(directory.join("index.json"), &index).unwrap();
    fs::write(directory.join("oci-layout"), "{}").unwrap();
    let other = Shop::new().unwrap();
    let imported = other.images.import_directory(&directory, None).unwrap();
    assert_eq!(names(&imported), ["example.com/x:1"]);
    assert!(other.images.import_directory(Path::new("/nonexistent/osb"), None).is_err());
    // A blob that is not what its name says.
    let layer = directory.join("blobs/sha256").join(digest(&layer("low")).hex());
    fs::write(&layer, "something else").unwrap();
    let third = Shop::new().unwrap();
    let refused = third.images.import_directory(&directory, None);
    assert!(matches!(refused, Err(ImageError::Mismatch { .. } | ImageError::Read(_))));
    assert!(third.images.list().is_empty());
}

#[test]
fn archives_that_are_too_much_or_broken_leave_nothing() {
    let limits = crate::Limits { archive: 1 << 20, unproven: 1 << 19, ..Default::default() };
    let Some(shop) = Shop::with(crate::Settings { limits, ..Default::default() }) else { return };
    let large = Tar::new().file("zeros", &"\0".repeat(4 << 20)).end();
    for archive in [large.clone(), gzip(&large), b"no archive".to_vec(), large[..1000].to_vec()] {
        let error = shop.images.import(&archive[..], None).unwrap_err();
        assert!(matches!(error, ImageError::Refused(_)), "{error}");
    }
    let wrong = Tar::new()
        .file("oci-layout", "{}")
        .file("index.json", r#"{"schemaVersion":2,"manifests":[]}"#)
        .file(&format!("blobs/sha256/{}", digest(b"x").hex()), "y")
        .end();
    assert!(matches!(shop.images.import(&wrong[..], None), Err(ImageError::Mismatch { .. })));
    shop.collect();
    for directory in ["layers", "unfinished", "ingest", "blobs/sha256", "images"] {
        assert_eq!(fs::count_entries(shop.path(directory)).unwrap(), 0, "{directory}");
    }
}
