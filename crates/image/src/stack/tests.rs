use std::path::PathBuf;

use osb_core::testkit::required;
use osb_sys::fs;
use rustix::fs::{FileType, XattrFlags, mknodat, setxattr};
use tempfile::TempDir;

use super::*;

/// Directories that are stacked on each other: `2` on `1` on `0`.
struct Layers(TempDir);

impl Layers {
    fn new() -> Option<Self> {
        if !required("root", rustix::process::geteuid().is_root()) {
            return None;
        }
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        for layer in ["0", "1", "2"] {
            fs::create_dir(root.path().join(layer), 0o755).unwrap();
        }
        Some(Self(root))
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn file(&self, path: &str, content: &str) -> &Self {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), content).unwrap();
        self
    }

    fn gone(&self, path: &str) -> &Self {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        mknodat(CWD, self.at(path), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        self
    }

    fn opaque(&self, path: &str) -> &Self {
        fs::create_dir_all(self.at(path)).unwrap();
        setxattr(self.at(path), "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
        self
    }

    fn stack(&self) -> Stack {
        let layers = ["2", "1", "0"].map(|layer| self.at(layer));
        Stack::open(layers, IdBase(0), Rights::Root).unwrap()
    }

    /// All files with their content, as they are seen.
    fn files(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        walk(&self.stack().root().unwrap(), "", &mut found);
        found
    }
}

fn walk(directory: &Directory, path: &str, found: &mut Vec<(String, String)>) {
    for (name, seen) in directory.names().unwrap() {
        let below = format!("{path}{}", name.to_string_lossy());
        if seen.kind == Kind::Directory {
            walk(&directory.enter(&name).unwrap(), &format!("{below}/"), found);
        } else {
            let content = io::read_to_string(directory.open(&name).unwrap()).unwrap();
            found.push((below, content));
        }
    }
}

#[test]
fn what_is_above_hides_what_is_below() {
    let Some(layers) = Layers::new() else { return };
    layers.file("0/a", "0").file("1/a", "1").file("0/d/b", "0").file("2/d/c", "2");
    layers
        .file("0/gone", "0")
        .gone("1/gone")
        .file("0/back", "0")
        .gone("1/back")
        .file("2/back", "2");
    layers.file("0/dir/x", "0").gone("2/dir").file("0/file", "0").file("1/file/x", "1");
    layers
        .file("0/hidden/old", "0")
        .opaque("1/hidden")
        .file("1/hidden/new", "1")
        .file("2/hidden/newer", "2");
    let expected = [
        ("a", "1"),
        ("back", "2"),
        ("d/b", "0"),
        ("d/c", "2"),
        ("file/x", "1"),
        ("hidden/new", "1"),
        ("hidden/newer", "2"),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    assert_eq!(layers.files(), expected);
}

/// The kernel is asked whether it sees the same.
#[test]
fn it_is_what_the_overlay_of_the_kernel_shows() {
    let Some(layers) = Layers::new() else { return };
    layers.file("0/a/b/c", "0").gone("1/a/b").file("2/a/b/d", "2").file("0/e/f", "0").opaque("1/e");
    layers.file("1/e/g", "1").file("0/h", "0").gone("2/h").file("0/i/j", "0").file("1/i/k", "1");
    let names = ["2", "1", "0"].map(|layer| layers.at(layer).display().to_string()).join(":");
    let options = [osb_sys::mount::FsOption::Text("lowerdir", &names)];
    let overlay =
        osb_sys::mount::filesystem("overlay", &options, osb_sys::mount::Attributes::empty())
            .unwrap();
    let overlay = open_directory(&overlay, c".").unwrap();
    let shown = Stack { layers: vec![overlay], marks: Marks::None, owners: IdBase(0) };
    let mut expected = Vec::new();
    walk(&shown.root().unwrap(), "", &mut expected);
    assert_eq!(layers.files(), expected);
    assert_eq!(expected.len(), 4);
}

#[test]
fn links_lead_where_they_lead_inside() {
    let Some(layers) = Layers::new() else { return };
    layers.file("0/usr/bin/sh", "sh").file("1/etc/passwd", "root");
    fs::create_dir_all(layers.at("2/usr")).unwrap();
    for (target, link) in [
        ("usr/bin", "0/bin"),
        ("/etc", "2/usr/conf"),
        ("../../../../etc/passwd", "0/usr/up"),
        ("loop", "0/loop"),
        ("nowhere/x", "0/dangling"),
    ] {
        fs::symlink(target, layers.at(link)).unwrap();
    }
    let stack = layers.stack();
    let find = |path: &str, follow| stack.find(Path::new(path), follow);
    for (path, real) in [
        ("/bin/sh", "usr/bin/sh"),
        ("usr/conf/passwd", "etc/passwd"),
        ("/usr/up", "etc/passwd"),
        ("/bin/../conf/./passwd", "etc/passwd"),
        ("/../..", ""),
        ("/new/../bin/x", "usr/bin/x"),
        ("/a/b/c", "a/b/c"),
        ("/dangling", "nowhere/x"),
    ] {
        assert_eq!(find(path, Follow::Last).unwrap().path, Path::new(real), "{path}");
    }
    assert_eq!(find("/bin", Follow::ButLast).unwrap().seen.unwrap().kind, Kind::Symlink);
    assert!(find("/bin", Follow::Last).unwrap().is_directory());
    assert!(find("/missing", Follow::Last).unwrap().seen.is_none());
    for path in ["/loop", "/loop/x", "/etc/passwd/x"] {
        assert!(find(path, Follow::Last).is_err(), "{path}");
    }
}

#[test]
fn a_plain_directory_is_what_it_seems_and_leads_nowhere_else() {
    let Some(layers) = Layers::new() else { return };
    layers.file("0/in/a", "a").file("0/secret", "s").gone("0/in/device");
    fs::symlink("../../secret", layers.at("0/in/out")).unwrap();
    fs::symlink(layers.at("0/secret"), layers.at("0/in/far")).unwrap();
    let stack = Stack::plain(&layers.at("0/in")).unwrap();
    let names = stack.root().unwrap().names().unwrap();
    assert_eq!(names[OsStr::new("device")].kind, Kind::Whiteout);
    assert!(stack.find(Path::new("out"), Follow::Last).unwrap().seen.is_none());
    assert!(stack.find(Path::new("far"), Follow::Last).unwrap().seen.is_none());
    assert!(stack.root().unwrap().open(OsStr::new("out")).is_err());
}
