//! A process that is killed at any moment loses nothing that has a name, and leaves nothing that is not
//! cleared away.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
};

use osb_core::{ImageName, testkit::required};
use osb_image::{Configuration, ImageError, Images, Intake, LayerList, Settings};
use osb_registry::{Digest, Manifest, Reference, media};
use osb_sys::{command::command, fs, userns::IdBase};

/// Where the process that is killed finds its store, and beside it the archives of layers.
const STORE: &str = "OSB_KILLED_STORE";
/// How many images there are, and of how many layers: so many that some are merged.
const IMAGES: usize = 4;
const LAYERS: usize = 10;
/// How often it is killed.
const KILLS: usize = 20;

fn open(directory: &Path) -> Images {
    Images::open(directory, IdBase(0), Settings::default()).unwrap()
}

fn name(image: usize) -> Reference {
    Reference::parse(&format!("image:{image}")).unwrap()
}

/// What a file of a layer says. Images have their lowest layers in common.
fn content(image: usize, layer: usize) -> String {
    if layer < LAYERS / 2 { format!("shared {layer}") } else { format!("{image} {layer}") }
}

/// Where the archive of a layer is.
fn archive(store: &Path, image: usize, layer: usize) -> PathBuf {
    store.with_file_name(format!("{image}-{layer}.tar"))
}

/// Writes the archive, without the code that is tested.
fn pack(store: &Path, image: usize, layer: usize) {
    let root = tempfile::tempdir().unwrap();
    for number in 0..20 {
        let path = root.path().join(format!("files/{number}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content(image, layer).repeat(200)).unwrap();
    }
    fs::write(root.path().join(format!("layer-{layer}")), content(image, layer)).unwrap();
    let mut tar = command("/usr/bin/tar");
    let tar = tar.args(["--create", "--sort=name", "--mtime=@0", "--file"]);
    let tar = tar.arg(archive(store, image, layer)).arg("--directory").arg(root.path()).arg(".");
    assert!(tar.status().unwrap().success());
}

/// Takes an image in, and tells of each step.
fn take_in(
    intake: &Intake,
    layers: &[Vec<u8>],
    mut step: impl FnMut(),
) -> Result<Digest, ImageError> {
    let mut descriptors = Vec::new();
    for layer in layers {
        let mut ingest =
            intake.begin_blob(&osb_registry::Descriptor::of(media::OCI_LAYER, layer))?;
        descriptors.push(ingest.wanted().clone());
        let here = usize::try_from(ingest.offset()).unwrap();
        for chunk in layer.get(here..).unwrap().chunks(16 << 10) {
            ingest.add(chunk)?;
        }
        step();
        ingest.finish()?;
    }
    let rootfs = LayerList {
        kind: "layers".to_owned(),
        diff_ids: descriptors.iter().map(|layer| layer.digest.clone()).collect(),
    };
    let config = Configuration { rootfs, ..Configuration::default() };
    let config = intake.put(media::OCI_CONFIG, &serde_json::to_vec(&config).unwrap())?;
    let manifest = Manifest {
        schema_version: 2,
        media_type: None,
        artifact_type: None,
        config,
        layers: descriptors,
        annotations: std::collections::BTreeMap::new(),
    };
    let manifest = intake.put(media::OCI_MANIFEST, &serde_json::to_vec(&manifest).unwrap())?;
    Ok(manifest.digest)
}

/// What the process does that is killed: it takes images in, names them, takes names away and
/// collects, for ever.
#[test]
#[expect(clippy::disallowed_methods, reason = "the other process has no configuration but this")]
fn works_until_it_is_killed() {
    let Ok(store) = std::env::var(STORE) else { return };
    let images = open(Path::new(&store));
    let step = || {
        // Past the harness, which would keep it.
        let mut out = std::io::stderr().lock();
        out.write_all(b"step\n").unwrap();
    };
    for turn in 0.. {
        let image = turn % IMAGES;
        let layers: Vec<_> = (0..LAYERS)
            .map(|layer| fs::read(archive(Path::new(&store), image, layer)).unwrap())
            .collect();
        let intake = images.intake();
        let manifest = take_in(&intake, &layers, step).unwrap();
        intake.unpack(&manifest, |_| step()).unwrap();
        step();
        intake.name(&name(image), &manifest).unwrap();
        drop(intake);
        step();
        images.unname(&name((image + 2) % IMAGES)).unwrap();
        step();
        images.collect(&BTreeSet::new()).unwrap();
    }
}

/// Everything below a directory, in it and further down.
fn all(directory: &Path) -> Vec<PathBuf> {
    let inner = fs::names(directory).unwrap().into_iter().map(|name| directory.join(name));
    inner.collect()
}

/// Checks every image that has a name, and that after a collection nothing else is there.
fn check(store: &Path) -> usize {
    let images = open(store);
    assert!(all(&store.join("unfinished")).is_empty());
    let named: Vec<usize> = (0..IMAGES)
        .filter(|image| images.find(&ImageName::new(name(*image).to_string())).is_ok())
        .collect();
    assert_eq!(images.list().iter().map(|image| image.names.len()).sum::<usize>(), named.len());
    for image in &named {
        let found = images.find(&ImageName::new(name(*image).to_string())).unwrap();
        for layer in 0..LAYERS {
            let path = format!("layer-{layer}");
            let mut holders = found.rootfs.layers.iter().filter(|files| files.join(&path).exists());
            let holder = holders.next().unwrap();
            assert_eq!(fs::read_to_string(holder.join(&path)).unwrap(), content(*image, layer));
        }
        let last = fs::read_to_string(found.rootfs.layers.first().unwrap().join("files/7"));
        assert_eq!(last.unwrap(), content(*image, LAYERS - 1).repeat(200));
    }
    images.collect(&BTreeSet::new()).unwrap();
    let (shared, own) = (LAYERS / 2, LAYERS - LAYERS / 2);
    let layers = if named.is_empty() { 0 } else { shared + own * named.len() };
    assert_eq!(all(&store.join("layers")).len(), layers);
    assert_eq!(all(&store.join("blobs/sha256")).len(), layers + 2 * named.len());
    assert_eq!(all(&store.join("images")).len(), named.len());
    assert_eq!(all(&store.join("merged")).len(), named.len());
    assert!(all(&store.join("ingest")).is_empty() && all(&store.join("unfinished")).is_empty());
    named.len()
}

#[test]
fn nothing_is_lost_and_nothing_left_whenever_it_is_killed() {
    if !required("root", rustix::process::geteuid().is_root()) {
        return;
    }
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let store = root.path().join("images");
    for image in 0..IMAGES {
        (0..LAYERS).for_each(|layer| pack(&store, image, layer));
    }
    let mut most = 0;
    for kill in 0..KILLS {
        let mut other = command(std::env::current_exe().unwrap());
        other.args(["--exact", "works_until_it_is_killed", "--nocapture"]).env(STORE, &store);
        let mut other = other.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let steps = BufReader::new(other.stderr.take().unwrap()).lines();
        // Each time a few steps further, over more than one turn.
        let taken = steps.take(1 + kill * 3).map_while(Result::ok).count();
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(taken, 1 + kill * 3, "it ended by itself");
        most = most.max(check(&store));
    }
    assert!(most >= 2, "it was killed before it did anything");
}
