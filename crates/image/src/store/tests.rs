use std::{collections::BTreeSet, io::Write as _};

use osb_registry::{Descriptor, Digest, Reference, media};
use osb_sys::fs;

use super::*;
use crate::trial::{Shop, Tar, digest, put_image};

fn layer(name: &str) -> Vec<u8> {
    Tar::new().directory("d", 0o755).file(&format!("d/{name}"), name).end()
}

fn reference(text: &str) -> Reference {
    Reference::parse(text).unwrap()
}

/// The files below a directory of the store.
fn count(shop: &Shop, directory: &str) -> usize {
    fs::count_entries(shop.path(directory)).unwrap()
}

#[test]
fn an_image_is_found_by_name_alias_and_digest() {
    let aliases = [("python:3.12".to_owned(), "base".to_owned())].into_iter().collect();
    let Some(shop) = Shop::with(Settings { aliases, ..Settings::default() }) else { return };
    let image = shop.add_named("base", &[layer("low"), layer("high")]);
    let digest = image.digest.clone().unwrap();
    let by_digest = format!("somewhere.example/base@{digest}");
    let alias = "docker.io/library/python:3.12";
    let names = ["base", "base:latest", "docker.io/library/base", "python:3.12", alias];
    let names = [&names[..], &[digest.as_str()]].concat();
    for name in names.into_iter().chain([by_digest.as_str()]) {
        let found = shop.find(name).unwrap();
        assert_eq!((found.name.as_str(), &found.digest), (name, &image.digest), "{name}");
        assert_eq!(found.rootfs.layers.len(), 2);
        assert!(found.rootfs.layers[0].join("d/high").exists(), "the topmost comes first");
    }
    for name in ["base:other", "python", "", "UPPER", "sha256:00"] {
        assert!(matches!(shop.find(name), Err(ImageError::Unknown(_))), "{name}");
    }
    assert!(!shop.find("host").unwrap().rootfs.views.is_empty());
}

#[test]
fn everything_is_found_again_by_another_process() {
    let Some(shop) = Shop::new() else { return };
    let image = shop.add_named("base", &[layer("low"), layer("high")]);
    fs::create_dir_all(shop.path("unfinished/0/files")).unwrap();
    fs::write(shop.path("unfinished/1"), "half").unwrap();
    let before = shop.images.list();
    let shop = shop.reopen();
    assert_eq!(shop.images.list(), before);
    assert_eq!(shop.find("base").unwrap().rootfs, image.rootfs);
    assert_eq!(count(&shop, "unfinished"), 0);
}

#[test]
fn layers_are_shared_and_unpacked_once() {
    let Some(shop) = Shop::new() else { return };
    let one = shop.add_named("one", &[layer("low"), layer("a")]);
    let other = shop.add_named("other", &[layer("low"), layer("b")]);
    assert_eq!(one.rootfs.layers[1], other.rootfs.layers[1]);
    assert_eq!(count(&shop, "layers"), 3);
    let listed = shop.images.list();
    assert_eq!(listed.len(), 2);
    for image in &listed {
        let shared = layer("low").len() as u64 + 3;
        assert!(image.own < image.size + image.unpacked - shared + 1, "{image:?}");
        assert!(image.own > 0 && image.layers == 2);
    }
    let usage = shop.images.usage();
    assert_eq!((usage.images, usage.shared, usage.unused), (2, layer("low").len() as u64 + 3, 0));
    let all = listed.iter().map(|image| image.own).sum::<u64>() + usage.shared;
    assert_eq!(usage.blobs + usage.layers, all);
    // Above something else, the same archive is another layer.
    shop.add_named("third", &[layer("a")]);
    assert_eq!(count(&shop, "layers"), 4);
}

#[test]
fn what_has_no_name_and_no_use_is_collected() {
    let Some(shop) = Shop::new() else { return };
    let kept = shop.add_named("kept", &[layer("low"), layer("a")]);
    let gone = shop.add_named("gone", &[layer("low"), layer("b")]);
    assert_eq!(shop.collect(), Collected::default());
    assert!(shop.images.unname(&reference("gone")).unwrap());
    assert!(!shop.images.unname(&reference("gone")).unwrap());
    let digest = gone.digest.clone().unwrap();
    // Somebody is about to use it, or uses it.
    assert_eq!(shop.collect(), Collected::default());
    drop(gone);
    let used = BTreeSet::from([digest.clone()]);
    assert_eq!(shop.images.collect(&used).unwrap(), Collected::default());
    assert!(shop.images.by_digest(&digest).is_ok());
    let collected = shop.collect();
    assert_eq!((collected.images, collected.layers, collected.blobs), (1, 1, 3));
    assert!(shop.images.by_digest(&digest).is_err());
    let shop = shop.reopen();
    assert_eq!(shop.find("kept").unwrap().rootfs, kept.rootfs);
    assert_eq!((count(&shop, "layers"), count(&shop, "blobs/sha256")), (2, 4));
    assert_eq!((count(&shop, "images"), count(&shop, "unfinished")), (1, 0));
}

#[test]
fn what_is_taken_in_is_not_collected() {
    let Some(shop) = Shop::new() else { return };
    let intake = shop.images.intake();
    let manifest = put_image(&intake, &[layer("low")]).unwrap();
    assert_eq!(shop.collect(), Collected::default());
    drop(intake.unpack(&manifest, |_| ()).unwrap());
    assert_eq!(shop.collect(), Collected::default());
    assert!(shop.images.by_digest(&manifest).is_ok());
    drop(intake);
    let collected = shop.collect();
    assert_eq!((collected.images, collected.layers, collected.blobs), (1, 1, 3));
}

#[test]
fn a_blob_is_gone_on_with_where_it_was_left() {
    let Some(shop) = Shop::new() else { return };
    let content = vec![7; 100_000];
    let wanted = Descriptor::of(media::OCI_LAYER, &content);
    let intake = shop.images.intake();
    let mut ingest = intake.begin_blob(&wanted).unwrap();
    ingest.write_all(&content[..60_000]).unwrap();
    // Who comes second begins anew, and is done first.
    let mut second = intake.begin_blob(&wanted).unwrap();
    assert_eq!(second.offset(), 0);
    second.add(&content[..10]).unwrap();
    drop((ingest, second, intake));
    let shop = shop.reopen();
    let intake = shop.images.intake();
    let mut ingest = intake.begin_blob(&wanted).unwrap();
    assert_eq!(ingest.offset(), 60_000);
    ingest.add(&content[60_000..]).unwrap();
    ingest.finish().unwrap();
    assert!(intake.has(&wanted.digest));
    assert_eq!(intake.document(&wanted.digest).unwrap(), content);
    assert_eq!((count(&shop, "ingest"), count(&shop, "unfinished")), (0, 0));
}

#[test]
fn what_is_not_what_was_asked_for_is_thrown_away() {
    let Some(shop) = Shop::new() else { return };
    let intake = shop.images.intake();
    let wanted = Descriptor::of(media::OCI_LAYER, b"right");
    for wrong in [&b"wrong"[..], b"long wrong", b"w"] {
        let mut ingest = intake.begin_blob(&wanted).unwrap();
        let result = ingest.add(wrong).and_then(|()| ingest.finish());
        assert!(matches!(result, Err(ImageError::Mismatch { .. })), "{result:?}");
        let mut again = intake.begin_blob(&wanted).unwrap();
        assert!(again.offset() < 2);
        again.restart().unwrap();
    }
    let lying = Descriptor { size: 6, ..wanted.clone() };
    let mut ingest = intake.begin_blob(&lying).unwrap();
    ingest.add(b"right").unwrap();
    assert!(matches!(ingest.finish(), Err(ImageError::Mismatch { .. })));
    assert!(!intake.has(&wanted.digest));
    drop(intake);
    shop.collect();
    assert_eq!((count(&shop, "ingest"), count(&shop, "blobs/sha256")), (0, 0));
}

#[test]
fn a_layer_that_is_not_what_the_configuration_says_leaves_nothing() {
    let Some(shop) = Shop::new() else { return };
    let intake = shop.images.intake();
    let (right, wrong) = (layer("right"), layer("wrong"));
    let manifest = put_image(&intake, std::slice::from_ref(&right)).unwrap();
    // The disk has lied about the blob.
    let path = shop.path("blobs/sha256").join(digest(&right).hex());
    fs::write(&path, &wrong).unwrap();
    let Err(ImageError::Layer { number: 1, source }) = intake.unpack(&manifest, |_| ()) else {
        panic!("it was unpacked")
    };
    assert!(matches!(source, UnpackError::Digest { .. }), "{source}");
    assert_eq!((count(&shop, "layers"), count(&shop, "unfinished")), (0, 0));
    assert!(shop.images.by_digest(&manifest).is_err());
}

#[test]
fn what_may_be_torn_is_made_again() {
    let Some(shop) = Shop::new() else { return };
    shop.add_named("base", &[layer("low"), layer("high")]);
    let other = shop.add_named("other", &[layer("low"), layer("third")]);
    let topmost = other.rootfs.layers[0].clone();
    drop(other);
    let chain = topmost.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    // A mark of an earlier boot: the machine went down before these were on the disk.
    let low = digest(&layer("low"));
    fs::write(shop.path("unsettled").join(format!("layer-{}", low.hex())), "before").unwrap();
    fs::write(shop.path("unsettled").join(format!("blob-{}", digest(&layer("third")).hex())), "x")
        .unwrap();
    fs::write(shop.path("layers").join(low.hex()).join("files/d/low"), "").unwrap();
    let shop = shop.reopen();
    let base = shop.find("base").unwrap();
    assert_eq!(fs::read_to_string(base.rootfs.layers[1].join("d/low")).unwrap(), "low");
    // Its blob is needed to push it: without that it is not whole.
    assert!(matches!(shop.find("other"), Err(ImageError::Unknown(_))));
    shop.collect();
    assert!(!shop.path("layers").join(chain).exists());
}

#[test]
fn an_image_whose_documents_contradict_each_other_is_refused() {
    let Some(shop) = Shop::new() else { return };
    let intake = shop.images.intake();
    let config = intake.put(media::OCI_CONFIG, br#"{"rootfs":{"diff_ids":[]}}"#).unwrap();
    let layer = intake.put(media::OCI_LAYER, &layer("x")).unwrap();
    let put = |manifest: serde_json::Value| {
        let text = serde_json::to_vec(&manifest).unwrap();
        let manifest = intake.put(media::OCI_MANIFEST, &text).unwrap();
        intake.unpack(&manifest.digest, |_| ()).unwrap_err().to_string()
    };
    let error =
        put(serde_json::json!({"schemaVersion": 2, "config": config, "layers": [layer.clone()]}));
    assert!(error.contains("1 layers and its configuration 0"), "{error}");
    let absent = Descriptor::of(media::OCI_CONFIG, b"absent");
    let error = put(serde_json::json!({"schemaVersion": 2, "config": absent, "layers": []}));
    assert!(error.contains("is not here"), "{error}");
    let error = put(serde_json::json!({"schemaVersion": 2, "config": layer, "layers": []}));
    assert!(error.contains("configuration is wrong"), "{error}");
    let error = put(serde_json::json!({"schemaVersion": 2, "manifests": []}));
    assert!(error.contains("several platforms"), "{error}");
    let long = vec![b' '; (4 << 20) + 1];
    let long = intake.put(media::OCI_MANIFEST, &long).unwrap();
    let error = intake.unpack(&long.digest, |_| ()).unwrap_err().to_string();
    assert!(error.contains("longer than"), "{error}");
    let unknown = intake.name(&reference("x"), &Digest::of(b"x"));
    assert!(matches!(unknown, Err(ImageError::Missing { .. })));
}

#[test]
fn many_at_once_unpack_a_layer_once() {
    let Some(shop) = Shop::new() else { return };
    let images = &shop.images;
    let layers = [layer("low"), layer("high")];
    let roots: Vec<_> = std::thread::scope(|scope| {
        let start = || scope.spawn(|| shop.add(&layers).unwrap().rootfs);
        let threads: Vec<_> = (0..8).map(|_| start()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(roots.iter().all(|rootfs| *rootfs == roots[0]));
    assert_eq!(count(&shop, "layers"), 2);
    assert_eq!(images.list().len(), 1);
    shop.collect();
    assert_eq!((count(&shop, "layers"), count(&shop, "unfinished")), (0, 0));
}

#[test]
fn of_many_layers_the_lower_ones_are_merged() {
    let Some(shop) = Shop::new() else { return };
    let layers: Vec<_> = (0..70)
        .map(|number| {
            let tar = Tar::new().file(&format!("d/{number}"), "").file("last", &number.to_string());
            let gone = format!("d/.wh.{}", number - number % 3);
            if number % 3 == 2 { tar.file(&gone, "").end() } else { tar.end() }
        })
        .collect();
    let few = shop.add_named("few", &layers[..8]);
    assert_eq!(few.rootfs.layers.len(), 8);
    let image = shop.add_named("many", &layers);
    assert_eq!(image.rootfs.layers.len(), 7);
    let last = fs::read_to_string(image.rootfs.layers[0].join("last")).unwrap();
    assert_eq!(last, "69");
    let merged = image.rootfs.layers.last().unwrap().clone();
    assert_eq!(fs::read_to_string(merged.join("last")).unwrap(), "63");
    let kept = (0..64).filter(|number| number % 3 != 0 || *number == 63).count();
    assert_eq!(fs::count_entries(merged.join("d")).unwrap(), kept);
    // One more layer is one more directory, and what was merged is used again.
    let more = shop.add_named("more", &[&layers[..], &[layer("more")]].concat());
    assert_eq!((more.rootfs.layers.len(), more.rootfs.layers.last()), (8, Some(&merged)));
    let shop = shop.reopen();
    assert_eq!(shop.find("many").unwrap().rootfs, image.rootfs);
    for name in ["many", "more"] {
        shop.images.unname(&reference(name)).unwrap();
    }
    drop((image, more));
    shop.collect();
    assert_eq!((count(&shop, "merged"), count(&shop, "layers")), (0, 8));
}

#[test]
fn a_layer_has_no_name_before_those_below_have_theirs() {
    let Some(shop) = Shop::new() else { return };
    let layers = [layer("low"), layer("high")];
    let intake = shop.images.intake();
    put_image(&intake, &layers).unwrap();
    let [low, high] = layers.map(|layer| digest(&layer));
    let diff_ids = [low.clone(), high.clone()];
    let counts = || (count(&shop, "layers"), count(&shop, "unfinished"));
    let never = intake.unpack_layer(&diff_ids, 1, &high, || false);
    assert!(matches!(never, Err(ImageError::Layer { number: 2, .. })), "{never:?}");
    assert_eq!(counts(), (0, 0));
    let then = intake.unpack_layer(&diff_ids, 1, &high, || {
        assert_eq!(counts(), (0, 1));
        intake.unpack_layer(&diff_ids, 0, &low, || false).is_ok()
    });
    assert_eq!(then.unwrap(), "high".len() as u64);
    assert_eq!(counts(), (2, 0));
}
