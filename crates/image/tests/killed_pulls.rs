//! Pulls that are killed again and again.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Child, Stdio},
};

use osb_core::{ImageName, testkit::required};
use osb_image::{Configuration, Images, LayerList, Remote, Settings};
use osb_registry::{
    Client, Descriptor, Digest, Manifest, Platform, Reference, media,
    testkit::{Kind, Registry, guard},
};
use osb_sys::{command::command, fs, userns::IdBase};

const LAYERS: usize = 6;
const SIZE: usize = 6 << 20;

/// Layers of one file each, with content of which no part is like another, as `tar` packs them.
fn layers(directory: &Path) -> Vec<Vec<u8>> {
    let pack = |number: usize| {
        let file = format!("file-{number}");
        let mut state = number as u64 + 1;
        let content = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56).to_le_bytes()[0]
        });
        fs::write(directory.join(&file), content.take(SIZE).collect::<Vec<u8>>()).unwrap();
        let mut tar = command("/usr/bin/tar");
        let packed = tar.args(["-c", "-C"]).arg(directory).arg(file).output().unwrap();
        assert!(packed.status.success());
        packed.stdout
    };
    (0..LAYERS).map(pack).collect()
}

/// Puts an image into a store under a name.
fn add(images: &Images, name: &str, layers: &[Vec<u8>]) -> Digest {
    let intake = images.intake();
    let Platform { os, architecture, .. } = Platform::host();
    let diff_ids = layers.iter().map(|layer| Digest::of(layer)).collect();
    let rootfs = LayerList { kind: "layers".to_owned(), diff_ids };
    let config = Configuration { os, architecture, rootfs, ..Configuration::default() };
    let config = serde_json::to_vec(&config).unwrap();
    let layers = layers.iter().map(|layer| intake.put(media::OCI_LAYER, layer).unwrap());
    let layers: Vec<Descriptor> = layers.collect();
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(media::OCI_MANIFEST.to_owned()),
        artifact_type: None,
        config: intake.put(media::OCI_CONFIG, &config).unwrap(),
        layers,
        annotations: BTreeMap::new(),
    };
    let manifest = serde_json::to_vec(&manifest).unwrap();
    let manifest = intake.put(media::OCI_MANIFEST, &manifest).unwrap().digest;
    intake.unpack(&manifest, |_| ()).unwrap();
    intake.name(&Reference::parse(name).unwrap(), &manifest).unwrap();
    manifest
}

fn start(directory: &Path, name: &str) -> Child {
    let mut pull = command(env!("CARGO_BIN_EXE_osb-pull"));
    pull.arg(directory).arg(name).stdout(Stdio::null()).spawn().unwrap()
}

/// How many bytes there are of blobs, whole ones and others, and how many layers.
fn amount(directory: &Path) -> (u64, usize) {
    let size = |directory: &Path| {
        let names = fs::names(directory).unwrap();
        let sizes = names.iter().filter_map(|name| fs::changed(directory.join(name)).unwrap());
        sizes.map(|(_, size)| size).sum::<u64>()
    };
    // A blob that gets its name in between is counted twice, which is not too little.
    let begun = size(&directory.join("ingest"));
    let layers = fs::names(directory.join("layers")).unwrap().len();
    (begun + size(&directory.join("blobs/sha256")), layers)
}

#[tokio::test]
async fn a_pull_that_is_killed_again_and_again_loses_nothing_and_leaves_nothing() {
    if !required("root", rustix::process::geteuid().is_root()) {
        return;
    }
    let Some(registry) = Registry::start(Kind::Open).await else { return };
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let open = |name| Images::open(scratch.path().join(name), IdBase(0), Settings::default());
    let theirs = open("theirs").unwrap();
    let digest = add(&theirs, "sample", &layers(scratch.path()));
    let client = Client::new(registry.settings(), guard()).unwrap();
    let reference = registry.reference("sample");
    let remote = Remote::new(theirs, client);
    remote.push(&ImageName::new("sample"), &reference, None, |_| {}).await.unwrap();

    let ours = scratch.path().join("ours");
    let (mut kills, mut before) = (0, (0, 0));
    loop {
        let mut pull = start(&ours, &reference.to_string());
        // Each gets somewhere before it is killed: some megabytes, or a layer.
        let ended = loop {
            if let Some(status) = pull.try_wait().unwrap() {
                break Some(status);
            }
            let now = amount(&ours);
            if now.0 >= before.0 + (4 << 20) || now.1 > before.1 {
                break None;
            }
            tokio::task::yield_now().await;
        };
        if let Some(status) = ended {
            assert!(status.success());
            break;
        }
        pull.kill().unwrap();
        pull.wait().unwrap();
        let after = amount(&ours);
        assert!(after.0 >= before.0 && after.1 >= before.1, "{before:?} was lost to {after:?}");
        before = after;
        kills += 1;
    }
    assert!(kills >= 3, "it was killed {kills} times");
    let image = open("ours").unwrap().find(&ImageName::new(reference.to_string())).unwrap();
    assert_eq!(image.digest, Some(digest));
    for (number, layer) in image.rootfs.layers.iter().rev().enumerate() {
        let [ours, theirs] = [layer.as_path(), scratch.path()]
            .map(|directory| fs::read(directory.join(format!("file-{number}"))).unwrap());
        assert!(ours == theirs, "layer {number}");
    }
    let count = |name: &str| fs::count_entries(ours.join(name)).unwrap();
    assert_eq!((count("layers"), count("blobs/sha256")), (LAYERS, LAYERS + 2));
    assert_eq!((count("ingest"), count("unfinished")), (0, 0));
    let resumed = registry.requests().into_iter().filter(|it| it.ends_with(" 206")).count();
    assert!(resumed > 0, "nothing was gone on with");
}
