//! A small image: a shell and a few programs of this host.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use osb_image::{Configuration, Entry, Intake, LayerList, Tarball, What};
use osb_registry::{Digest, Manifest, Reference, media};

const PROGRAMS: [&str; 21] = [
    "cat", "chmod", "chown", "cp", "env", "false", "find", "id", "ln", "ls", "mkdir", "mv",
    "printenv", "rm", "sh", "sleep", "sort", "stat", "tail", "touch", "true",
];

const FILES: [(&str, &str); 3] = [
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/srv/app:/bin/sh\n"),
    ("etc/group", "root:x:0:\napp:x:1001:\nextra:x:50:app\n"),
    ("etc/issue", "small\n"),
];

/// Puts the image into a store under this name. `onbuild` are its triggers.
pub(crate) fn put(intake: &Intake, name: &str, onbuild: &[&str]) -> Digest {
    let layer = layer();
    let mut configuration = Configuration {
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        created: Some("2024-05-06T07:08:09Z".to_owned()),
        rootfs: LayerList { kind: "layers".to_owned(), diff_ids: vec![Digest::of(&layer)] },
        ..Configuration::default()
    };
    configuration.config.env = vec!["PATH=/usr/bin".to_owned(), "FROM_BASE=yes".to_owned()];
    configuration.config.cmd = vec!["sh".to_owned()];
    configuration.config.on_build = onbuild.iter().map(|text| (*text).to_owned()).collect();
    let text = serde_json::to_vec(&configuration).unwrap();
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(media::OCI_MANIFEST.to_owned()),
        artifact_type: None,
        config: intake.put(media::OCI_CONFIG, &text).unwrap(),
        layers: vec![intake.put(media::OCI_LAYER, &layer).unwrap()],
        annotations: BTreeMap::new(),
    };
    let manifest = serde_json::to_vec(&manifest).unwrap();
    let manifest = intake.put(media::OCI_MANIFEST, &manifest).unwrap().digest;
    intake.unpack(&manifest, |_| ()).unwrap();
    intake.name(&Reference::parse(name).unwrap(), &manifest).unwrap();
    manifest
}

fn layer() -> Vec<u8> {
    let mut tarball = Tarball::new(Vec::new());
    let none = BTreeMap::new();
    let mut add = |path: &Path, what, mode, content: &[u8]| {
        let modified = 1_700_000_000;
        let entry = Entry { path, what, mode, user: 0, group: 0, modified, extended: &none };
        tarball.add(&entry, content).unwrap();
    };
    for (directory, mode) in [
        ("dev", 0o755),
        ("etc", 0o755),
        ("srv", 0o755),
        ("srv/app", 0o755),
        ("proc", 0o555),
        ("root", 0o700),
        ("sys", 0o555),
        ("tmp", 0o1777),
        ("usr", 0o755),
        ("usr/bin", 0o755),
        ("usr/lib", 0o755),
        ("usr/lib64", 0o755),
    ] {
        add(Path::new(directory), What::Directory, mode, b"");
    }
    for (link, target) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")] {
        add(Path::new(link), What::Symlink(target.as_bytes()), 0o777, b"");
    }
    for (path, text) in FILES {
        add(Path::new(path), What::File { size: text.len() as u64 }, 0o644, text.as_bytes());
    }
    let mut libraries = BTreeSet::new();
    for program in PROGRAMS {
        let path = Path::new("/usr/bin").join(program);
        libraries.extend(needed(&path));
        let content = osb_sys::fs::read(&path).unwrap();
        let at = Path::new("usr/bin").join(program);
        add(&at, What::File { size: content.len() as u64 }, 0o755, &content);
    }
    for library in libraries {
        let content = osb_sys::fs::read(&library).unwrap();
        let at = Path::new("/usr").join(library.strip_prefix("/").unwrap());
        let at = if library.starts_with("/usr") { library } else { at };
        let at = at.strip_prefix("/").unwrap();
        let mut ways: Vec<&Path> = at.ancestors().skip(1).collect();
        ways.reverse();
        for way in ways.into_iter().filter(|way| way.iter().count() > 2) {
            add(way, What::Directory, 0o755, b"");
        }
        add(at, What::File { size: content.len() as u64 }, 0o755, &content);
    }
    tarball.finish().unwrap()
}

/// The libraries that a program is loaded with.
fn needed(program: &Path) -> Vec<PathBuf> {
    let output = osb_sys::command::command("/usr/bin/ldd").arg(program).output();
    let output = output.unwrap_or_else(|error: io::Error| panic!("ldd: {error}"));
    let text = String::from_utf8(output.stdout).unwrap();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}
