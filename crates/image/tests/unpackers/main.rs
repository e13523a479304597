//! What we unpack is what others unpack, and what others write is what we read.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod docker;
mod layout;
mod tree;
mod tricky;

use std::path::{Path, PathBuf};

use osb_core::{ImageName, testkit::required};
use osb_image::{ArchiveKind, Images, Settings};
use osb_registry::Reference;
use osb_sys::{command::command, fs, userns::IdBase};

use crate::{docker::Docker, layout::Layout, tree::Tree};

/// Whether these programs are here, and this process may give files away.
fn can_run(tools: &[&str]) -> bool {
    let root = rustix::process::geteuid().is_root();
    let have = |tool: &&str| Path::new("/usr/bin").join(tool).exists();
    required("root", root) && tools.iter().all(|tool| required(tool, have(tool)))
}

fn run(program: &str, arguments: &[&str]) {
    let mut command = command(Path::new("/usr/bin").join(program));
    let output = command.env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent").args(arguments);
    let output = output.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

fn open(directory: &Path) -> Images {
    Images::open(directory, IdBase(0), Settings::default()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The files of an image as sandboxes see them.
fn seen(images: &Images, name: &str) -> Tree {
    let image = images.find(&ImageName::new(name)).unwrap();
    Tree::of_layers(&image.rootfs.layers)
}

#[test]
fn trees_are_those_that_umoci_unpacks() {
    if !can_run(&["umoci"]) {
        return;
    }
    for format in ["pax", "gnu"] {
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        let layout = Layout::new(&root.path().join("layout"));
        let layers = tricky::layers(&root.path().join("made"), format);
        layout.write("latest", &layers);
        let bundle = root.path().join("bundle");
        let source = format!("{}:latest", text(&layout.directory));
        run("umoci", &["unpack", "--image", &source, text(&bundle)]);
        let images = open(&root.path().join("images"));
        let name = Reference::parse("tricky").unwrap();
        images.import_directory(&layout.directory, Some(&name)).unwrap();
        let (ours, theirs) = (seen(&images, "tricky"), Tree::of(&bundle.join("rootfs")));
        assert!(theirs.len() > 60, "{} entries are too few to tell anything", theirs.len());
        ours.compare(&theirs);
    }
}

#[test]
fn layers_that_were_merged_are_what_umoci_unpacks() {
    if !can_run(&["umoci"]) {
        return;
    }
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let layout = Layout::new(&root.path().join("layout"));
    let mut layers = tricky::layers(&root.path().join("made"), "pax");
    layers.extend(tricky::many(&root.path().join("many"), 20));
    layout.write("latest", &layers);
    let bundle = root.path().join("bundle");
    let source = format!("{}:latest", text(&layout.directory));
    run("umoci", &["unpack", "--image", &source, text(&bundle)]);
    let images = open(&root.path().join("images"));
    let name = Reference::parse("many").unwrap();
    images.import_directory(&layout.directory, Some(&name)).unwrap();
    let image = images.find(&ImageName::new("many")).unwrap();
    assert!(image.rootfs.layers.len() <= 8 && layers.len() > 20);
    seen(&images, "many").compare(&Tree::of(&bundle.join("rootfs")));
}

#[test]
fn what_skopeo_writes_is_imported() {
    if !can_run(&["skopeo"]) {
        return;
    }
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let layout = Layout::new(&root.path().join("layout"));
    layout.write("latest", &tricky::layers(&root.path().join("made"), "pax"));
    let images = open(&root.path().join("images"));
    let name = Reference::parse("original").unwrap();
    images.import_directory(&layout.directory, Some(&name)).unwrap();
    let original = seen(&images, "original");
    let source = format!("oci:{}:latest", text(&layout.directory));
    let written = [
        ("docker-archive", ":example.com/app:docker", "example.com/app:docker"),
        ("oci-archive", ":example.com/app:oci", "example.com/app:oci"),
    ];
    for (kind, suffix, name) in written {
        let archive = root.path().join(kind);
        let target = format!("{kind}:{}{suffix}", text(&archive));
        run("skopeo", &["--insecure-policy", "copy", "--quiet", &source, &target]);
        let imported = images.import(fs::open(&archive).unwrap(), None).unwrap();
        assert_eq!(imported[0].names, [Reference::parse(name).unwrap()]);
        seen(&images, name).compare(&original);
    }
}

#[test]
fn what_is_exported_is_read_by_skopeo() {
    if !can_run(&["skopeo"]) {
        return;
    }
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let layout = Layout::new(&root.path().join("layout"));
    layout.write("latest", &tricky::layers(&root.path().join("made"), "pax"));
    let images = open(&root.path().join("images"));
    let name = Reference::parse("example.com/app:1").unwrap();
    images.import_directory(&layout.directory, Some(&name)).unwrap();
    let image = images.find(&ImageName::new("example.com/app:1")).unwrap();
    let original = seen(&images, "example.com/app:1");
    for (kind, transport) in
        [(ArchiveKind::Oci, "oci-archive"), (ArchiveKind::Docker, "docker-archive")]
    {
        let archive = root.path().join(transport);
        let file = fs::create(&archive, 0o600).unwrap();
        images.export(&image, kind, std::slice::from_ref(&name), file).unwrap();
        let copy = root.path().join(format!("{transport}-copy"));
        let (source, target) =
            (format!("{transport}:{}", text(&archive)), format!("oci:{}:latest", text(&copy)));
        run("skopeo", &["--insecure-policy", "copy", "--quiet", &source, &target]);
        let again = Reference::parse(&format!("again:{transport}")).unwrap();
        images.import_directory(&copy, Some(&again)).unwrap();
        seen(&images, &format!("again:{transport}")).compare(&original);
    }
}

/// An image of these layers as we have it, after Docker has it twice: as somebody saved it, and as we
/// exported it. What differs must be what is known to.
fn compare_with_docker(docker: &Docker, directory: &Path, layers: &[PathBuf], known: &[String]) {
    let layout = Layout::new(&directory.join("layout"));
    layout.write("latest", layers);
    let images = open(&directory.join("images"));
    let name = Reference::parse("example.com/ours:1").unwrap();
    images.import_directory(&layout.directory, Some(&name)).unwrap();
    let ours = seen(&images, "example.com/ours:1");

    docker.load(&layout::saved(&directory.join("saved"), "example.com/saved:1", layers));
    let theirs = docker.seen("example.com/saved:1");
    assert!(theirs.len() > 60, "{} entries are too few to tell anything", theirs.len());
    ours.compare_but(&theirs, known);

    let image = images.find(&ImageName::new("example.com/ours:1")).unwrap();
    let exported = directory.join("exported");
    let file = fs::create(&exported, 0o600).unwrap();
    images.export(&image, ArchiveKind::Docker, &[name], file).unwrap();
    docker.load(&exported);
    docker.seen("example.com/ours:1").compare(&theirs);
}

#[test]
fn trees_are_those_that_docker_unpacks() {
    if !can_run(&[]) || !required("docker", Docker::is_here()) {
        return;
    }
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let docker = Docker::start(&root.path().join("docker"), "vfs");
    for format in ["pax", "gnu"] {
        let directory = root.path().join(format);
        let mut layers = tricky::layers(&directory.join("made"), format);
        layers.push(tricky::devices(&directory));
        let mut known = docker::unnamed();
        known.extend(docker::DEVICES.map(str::to_owned));
        if format == "pax" {
            // The other has no attributes.
            known.extend(docker::LOST.into_iter().chain(docker::COPIED).map(str::to_owned));
        }
        compare_with_docker(&docker, &directory, &layers, &known);
    }
}

#[test]
fn trees_are_those_that_docker_shows_of_an_overlay() {
    if !can_run(&[]) || !required("docker", Docker::is_here()) {
        return;
    }
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let docker = Docker::start(&root.path().join("docker"), "overlay2");
    let mut layers = tricky::layers_without(&docker::CANNOT, &root.path().join("made"), "pax");
    layers.extend(tricky::many(&root.path().join("many"), 20));
    let known = [&docker::LOST[..], &docker::ALONE].concat().into_iter().map(str::to_owned);
    compare_with_docker(&docker, root.path(), &layers, &known.collect::<Vec<_>>());
}
