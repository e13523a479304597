//! Images that are made for a test.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use osb_image::{Configuration, Entry, Images, LayerList, RunConfiguration, Tarball, What};
use osb_registry::{Digest, Manifest, Reference, media};

const PROGRAMS: [&str; 14] = [
    "bash", "cat", "env", "find", "id", "ls", "mkdir", "rm", "sh", "sleep", "sort", "stat", "tail",
    "touch",
];

/// A layer that is being written.
#[derive(Debug)]
pub(crate) struct Layer(Tarball<Vec<u8>>);

impl Layer {
    pub(crate) fn new() -> Self {
        Self(Tarball::new(Vec::new()))
    }

    pub(crate) fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(Path::new(path), What::Directory, mode, b"")
    }

    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        self.program(Path::new(path), text.as_bytes(), 0o644)
    }

    pub(crate) fn program(self, path: &Path, content: &[u8], mode: u32) -> Self {
        self.entry(path, What::File { size: content.len() as u64 }, mode, content)
    }

    pub(crate) fn link(self, path: &str, target: &str) -> Self {
        self.entry(Path::new(path), What::Symlink(target.as_bytes()), 0o777, b"")
    }

    pub(crate) fn without(mut self, path: &str) -> Self {
        self.0.remove(Path::new(path), 1_700_000_000).unwrap();
        self
    }

    fn entry(mut self, path: &Path, what: What<'_>, mode: u32, content: &[u8]) -> Self {
        let (extended, modified) = (&BTreeMap::new(), 1_700_000_000);
        let entry = Entry { path, what, mode, user: 0, group: 0, modified, extended };
        self.0.add(&entry, content).unwrap();
        self
    }

    pub(crate) fn end(self) -> Vec<u8> {
        self.0.finish().unwrap()
    }
}

/// A layer with a shell, a few programs of this host, and three users.
pub(crate) fn base() -> Vec<u8> {
    static BASE: LazyLock<Vec<u8>> = LazyLock::new(|| furnished(programs(Layer::new())).end());
    BASE.clone()
}

/// The same programs, and nothing else.
pub(crate) fn programs(mut layer: Layer) -> Layer {
    for (directory, mode) in [("usr", 0o755), ("usr/bin", 0o755), ("usr/lib", 0o755)] {
        layer = layer.directory(directory, mode);
    }
    layer = layer.directory("usr/lib64", 0o755);
    for (link, target) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")] {
        layer = layer.link(link, target);
    }
    let mut libraries = BTreeSet::new();
    for program in PROGRAMS {
        let path = Path::new("/usr/bin").join(program);
        libraries.extend(needed(&path));
        let content = osb_sys::fs::read(&path).unwrap();
        layer = layer.program(&Path::new("usr/bin").join(program), &content, 0o755);
    }
    for library in libraries {
        let content = osb_sys::fs::read(&library).unwrap();
        let at = library.strip_prefix("/").unwrap();
        let at = if at.starts_with("usr") { at.to_owned() } else { Path::new("usr").join(at) };
        let mut way: Vec<&Path> = at.ancestors().skip(1).collect();
        way.reverse();
        for directory in way.into_iter().filter(|way| way.iter().count() > 2) {
            layer = layer.directory(directory.to_str().unwrap(), 0o755);
        }
        layer = layer.program(&at, &content, 0o755);
    }
    layer
}

fn furnished(mut layer: Layer) -> Layer {
    for (directory, mode) in [
        ("dev", 0o755),
        ("etc", 0o755),
        ("proc", 0o555),
        ("root", 0o700),
        ("srv", 0o755),
        ("sys", 0o555),
        ("tmp", 0o1777),
    ] {
        layer = layer.directory(directory, mode);
    }
    layer
        .file(
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/srv/app:/bin/sh\n\
             far:x:70000:70000::/:/bin/sh\n",
        )
        .file("etc/group", "root:x:0:\napp:x:1001:\nextra:x:50:app\nother:x:60:\n")
}

/// The libraries that a program is loaded with.
fn needed(program: &Path) -> Vec<PathBuf> {
    let output = osb_sys::command::command("/usr/bin/ldd").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// Takes in an image of these layers, lowest first, and gives it a name.
pub(crate) fn put(
    images: &Images,
    name: &str,
    layers: &[Vec<u8>],
    config: RunConfiguration,
) -> Digest {
    let intake = images.intake();
    let diff_ids = layers.iter().map(|layer| Digest::of(layer)).collect();
    let configuration = Configuration {
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        rootfs: LayerList { kind: "layers".to_owned(), diff_ids },
        config,
        ..Configuration::default()
    };
    let text = serde_json::to_vec(&configuration).unwrap();
    let layers = layers.iter().map(|layer| intake.put(media::OCI_LAYER, layer).unwrap());
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(media::OCI_MANIFEST.to_owned()),
        artifact_type: None,
        layers: layers.collect(),
        config: intake.put(media::OCI_CONFIG, &text).unwrap(),
        annotations: BTreeMap::new(),
    };
    let manifest = serde_json::to_vec(&manifest).unwrap();
    let manifest = intake.put(media::OCI_MANIFEST, &manifest).unwrap().digest;
    intake.unpack(&manifest, |_| ()).unwrap();
    intake.name(&Reference::parse(name).unwrap(), &manifest).unwrap();
    manifest
}
