use std::{os::unix::fs::MetadataExt, path::PathBuf};

use osb_sys::{
    fs,
    mount::{self, Attributes, FsOption},
    rootless::Rights,
    userns::IdBase,
};
use proptest::prelude::*;

use super::*;
use crate::{
    archive::Archive,
    trial::{Place, Tar},
};

/// Layers that were unpacked, and an overlay of the kernel on them.
struct Overlay {
    place: Place,
    root: PathBuf,
    without: Vec<PathBuf>,
    authorities: Option<String>,
}

impl Overlay {
    /// None where this process may not mount.
    fn on(layers: &[Vec<u8>]) -> Option<Self> {
        let mut place = Place::new()?;
        for layer in layers {
            place.unpack(layer).unwrap();
        }
        for name in ["upper", "work", "merged"] {
            fs::create_dir(place.root.path().join(name), 0o755).unwrap();
        }
        let root = place.root.path().join("merged");
        let lower: Vec<String> =
            place.layers().iter().map(|path| path.display().to_string()).collect();
        let (lower, upper) =
            (lower.join(":"), place.root.path().join("upper").display().to_string());
        let work = place.root.path().join("work").display().to_string();
        let options = [
            FsOption::Text("lowerdir", &lower),
            FsOption::Text("upperdir", &upper),
            FsOption::Text("workdir", &work),
            FsOption::Text("redirect_dir", "nofollow"),
            FsOption::Text("metacopy", "off"),
            FsOption::Text("index", "off"),
        ];
        let overlay = mount::filesystem("overlay", &options, Attributes::empty()).unwrap();
        mount::attach(overlay, &root).unwrap();
        Some(Self { place, root, without: Vec::new(), authorities: None })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn upper(&self) -> PathBuf {
        self.place.root.path().join("upper")
    }

    /// The layer of what was changed, and its entries.
    fn diff(&self) -> (Vec<u8>, Vec<String>) {
        let changed = Stack::open([self.upper()], IdBase(0), Rights::Root).unwrap();
        let below = Stack::open(self.place.layers(), IdBase(0), Rights::Root).unwrap();
        let diff = Diff {
            changed: &changed,
            below: &below,
            without: &self.without,
            newest: None,
            authorities: self.authorities.as_deref(),
        };
        let mut layer = Vec::new();
        let written = diff.write(&mut layer).unwrap();
        let mut archive = Archive::new(&layer[..]);
        let mut names = Vec::new();
        while let Some(entry) = archive.next().unwrap() {
            names.push(String::from_utf8(entry.path).unwrap());
        }
        assert_eq!(names.len() as u64, written.entries);
        (layer, names)
    }

    /// Everything in a tree, in lines.
    fn listed(root: &Stack) -> Vec<String> {
        let mut lines = Vec::new();
        list(&root.root().unwrap(), Path::new(""), &mut lines);
        lines
    }

    /// What the kernel shows.
    fn shown(&self) -> Vec<String> {
        Self::listed(&Stack::plain(&self.root).unwrap())
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.root, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

fn list(directory: &Directory, path: &Path, lines: &mut Vec<String>) {
    for (name, seen) in directory.names().unwrap() {
        let at = path.join(&name);
        let content = match seen.kind {
            Kind::File => io::read_to_string(directory.open(&name).unwrap()).unwrap(),
            Kind::Symlink => String::from_utf8(directory.read_link(&name).unwrap()).unwrap(),
            Kind::Directory | Kind::Fifo | Kind::Socket | Kind::Device | Kind::Whiteout => {
                String::new()
            }
        };
        let names = if seen.kind == Kind::Directory { 0 } else { seen.names };
        let Seen { kind, mode, user, group, modified, .. } = seen;
        lines.push(format!(
            "{} {kind:?} {mode:o} {user}:{group} {modified} {names} {content}",
            at.display()
        ));
        if kind == Kind::Directory {
            list(&directory.enter(&name).unwrap(), &at, lines);
        }
    }
}

fn base() -> Vec<Vec<u8>> {
    let lower = Tar::new()
        .directory("etc/", 0o755)
        .file("etc/passwd", "root")
        .file("etc/gone", "x")
        .directory("d/", 0o700)
        .file("d/a", "a")
        .file("d/b", "b")
        .directory("tmp/", 0o1777)
        .symlink("bin", "usr/bin")
        .file("usr/bin/sh", "sh");
    let upper = Tar::new().file("etc/new", "new").file(".wh.nothing", "");
    vec![lower.end(), upper.end()]
}

/// From an archive to a layer, through an overlay of the kernel, and back to an archive that becomes a
/// layer again.
#[test]
fn what_was_changed_can_be_stacked_where_it_was_made() {
    let Some(mut overlay) = Overlay::on(&base()) else { return };
    fs::remove_file(overlay.at("etc/gone")).unwrap();
    osb_sys::tree::remove(&overlay.at("d")).unwrap();
    fs::create_dir(overlay.at("d"), 0o750).unwrap();
    fs::write(overlay.at("d/c"), "c").unwrap();
    fs::write(overlay.at("etc/passwd"), "root and more").unwrap();
    fs::chown(overlay.at("etc/passwd"), 7, 8).unwrap();
    fs::set_mode(overlay.at("etc/passwd"), 0o4711).unwrap();
    fs::remove_file(overlay.at("bin")).unwrap();
    fs::create_dir_all(overlay.at("bin/deep/er")).unwrap();
    fs::symlink("../x", overlay.at("bin/deep/link")).unwrap();
    fs::write(overlay.at("one"), "same").unwrap();
    rustix::fs::link(overlay.at("one"), overlay.at("two")).unwrap();
    fs::remove_file(overlay.at("usr/bin/sh")).unwrap();
    fs::write(overlay.at("usr/bin/sh"), "another").unwrap();
    fs::set_mode(overlay.at("tmp"), 0o700).unwrap();
    let shown = overlay.shown();
    let (layer, names) = overlay.diff();
    assert_eq!(
        names,
        [
            "bin/",
            "bin/deep/",
            "bin/deep/er/",
            "bin/deep/link",
            "d/",
            "d/.wh..wh..opq",
            "d/c",
            "etc/",
            "etc/.wh.gone",
            "etc/passwd",
            "one",
            "tmp/",
            "two",
            "usr/",
            "usr/bin/",
            "usr/bin/sh"
        ]
    );
    assert!(overlay.diff().0 == layer, "it is another one the second time");
    overlay.place.unpack(&layer).unwrap();
    let stacked = Stack::open(overlay.place.layers(), IdBase(0), Rights::Root).unwrap();
    assert_eq!(Overlay::listed(&stacked), shown);
}

#[test]
fn what_is_others_and_what_is_as_it_was_is_left_out() {
    let Some(mut overlay) = Overlay::on(&base()) else { return };
    overlay.without = ["etc/resolv.conf", "opt/opensandbox/.env", "root/.cache/pip", "etc/passwd"]
        .map(PathBuf::from)
        .to_vec();
    fs::write(overlay.at("etc/resolv.conf"), "nameserver").unwrap();
    fs::remove_file(overlay.at("etc/passwd")).unwrap();
    fs::create_dir_all(overlay.at("opt/opensandbox")).unwrap();
    fs::write(overlay.at("opt/opensandbox/.env"), "").unwrap();
    fs::create_dir_all(overlay.at("root/.cache/pip")).unwrap();
    // Touched, and as before.
    fs::write(overlay.at("tmp/x"), "").unwrap();
    fs::remove_file(overlay.at("tmp/x")).unwrap();
    assert_eq!(overlay.diff().1, [""; 0]);
    fs::create_dir_all(overlay.at("opt/own")).unwrap();
    fs::write(overlay.at("root/.profile"), "").unwrap();
    assert_eq!(overlay.diff().1, ["opt/", "opt/own/", "root/", "root/.profile"]);
}

#[test]
fn authorities_of_the_runtime_are_taken_out_again() {
    let certificate = |name: &str| format!("{BEGIN}\n{name}\n{END}\n");
    let (own, ours) = (certificate("own"), certificate("ours"));
    let list = "etc/ssl/certs/ca-certificates.crt";
    let layer = Tar::new().file(list, &own).end();
    let Some(mut overlay) = Overlay::on(&[layer]) else { return };
    overlay.authorities = Some(format!("# a comment\n{ours}"));
    fs::write(overlay.at(list), format!("{own}{ours}")).unwrap();
    assert_eq!(overlay.diff().1, [""; 0]);
    // What the step itself changed is kept.
    let more = certificate("more");
    fs::write(overlay.at(list), format!("{more}{ours}{own}")).unwrap();
    let (layer, names) = overlay.diff();
    assert_eq!(names.last().unwrap(), list);
    overlay.place.unpack(&layer).unwrap();
    assert_eq!(fs::read_to_string(overlay.place.at(list)).unwrap(), format!("{more}{own}"));
}

#[test]
fn powers_and_notes_are_kept_and_time_can_be_bounded() {
    let Some(mut overlay) = Overlay::on(&base()) else { return };
    fs::write(overlay.at("ping"), "x").unwrap();
    let mut powers = vec![1, 0, 0, 2];
    powers.extend([0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let set = |name: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(overlay.at("ping"), name, value, flags).unwrap();
    };
    set("security.capability", &powers);
    set("user.note", b"kept");
    set("trusted.other", b"not");
    let changed = Stack::open([overlay.upper()], IdBase(0), Rights::Root).unwrap();
    let below = Stack::open(overlay.place.layers(), IdBase(0), Rights::Root).unwrap();
    let (without, newest) = (&[][..], Some(1000));
    let diff = Diff { changed: &changed, below: &below, without, newest, authorities: None };
    let mut layer = Vec::new();
    diff.write(&mut layer).unwrap();
    let mut archive = Archive::new(&layer[..]);
    let entry = archive.next().unwrap().unwrap();
    assert_eq!(entry.modified.seconds, 1000);
    let names: Vec<_> = entry.extended.iter().map(|(name, _)| name.as_slice()).collect();
    assert_eq!(names, [&b"security.capability"[..], b"user.note"]);
    assert_eq!(entry.extended[0].1, powers);
    overlay.place.unpack(&layer).unwrap();
    assert_eq!(overlay.place.at("ping").metadata().unwrap().mtime(), 1000);
}

#[derive(Debug, Clone)]
enum Act {
    Write(usize, u8),
    Remove(usize),
    Make(usize),
    Link(usize, usize),
}

const PATHS: [&str; 9] = ["d", "d/a", "d/n", "d/n/m", "etc", "etc/passwd", "x", "x/y", "bin"];

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let path = 0..PATHS.len();
    proptest::collection::vec(
        prop_oneof![
            (path.clone(), b'a'..=b'z').prop_map(|(at, byte)| Act::Write(at, byte)),
            path.clone().prop_map(Act::Remove),
            path.clone().prop_map(Act::Make),
            (path.clone(), path).prop_map(|(from, to)| Act::Link(from, to)),
        ],
        0..12,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever is done in an overlay, its layer stacked on those below is what was seen.
    #[test]
    fn any_change_can_be_stacked(acts in acts()) {
        let Some(mut overlay) = Overlay::on(&base()) else { return Ok(()) };
        for act in acts {
            match act {
                Act::Write(at, byte) => drop(fs::write(overlay.at(PATHS[at]), [byte])),
                Act::Remove(at) => {
                    if fs::remove_file(overlay.at(PATHS[at])).is_err() {
                        osb_sys::tree::remove(&overlay.at(PATHS[at])).ok();
                    }
                }
                Act::Make(at) => drop(fs::create_dir(overlay.at(PATHS[at]), 0o711)),
                Act::Link(from, to) => {
                    rustix::fs::link(overlay.at(PATHS[from]), overlay.at(PATHS[to])).ok();
                }
            }
        }
        let shown = overlay.shown();
        let (layer, _) = overlay.diff();
        overlay.place.unpack(&layer).unwrap();
        let stacked = Stack::open(overlay.place.layers(), IdBase(0), Rights::Root).unwrap();
        let without_times = |lines: Vec<String>| -> Vec<String> {
            // A directory that is as it was is not in the layer, so it is as old as it was.
            lines.into_iter().map(|line| {
                let mut words: Vec<&str> = line.split(' ').collect();
                if words[1] == "Directory" { words[4] = "-"; }
                words.join(" ")
            }).collect()
        };
        prop_assert_eq!(without_times(Overlay::listed(&stacked)), without_times(shown));
    }
}

#[test]
fn a_file_that_is_hardly_there_is_no_part_of_a_layer() {
    let Some(overlay) = Overlay::on(&base()) else { return };
    let file = fs::create(overlay.at("huge"), 0o644).unwrap();
    file.set_len(1 << 40).unwrap();
    let changed = Stack::open([overlay.upper()], IdBase(0), Rights::Root).unwrap();
    let below = Stack::open(overlay.place.layers(), IdBase(0), Rights::Root).unwrap();
    let (without, newest, authorities) = (&[][..], None, None);
    let diff = Diff { changed: &changed, below: &below, without, newest, authorities };
    let refused = diff.write(io::sink()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge, "{refused}");
    assert!(refused.to_string().contains("huge"), "{refused}");
}

#[test]
fn a_layer_is_not_longer_than_layers_may_be() {
    let (mut tarball, extended) = (Tarball::new(io::sink()), BTreeMap::new());
    let what = What::File { size: Limits::default().layer + 1 };
    let path = Path::new("endless");
    let (mode, user, group, modified, extended) = (0o644, 0, 0, 0, &extended);
    let entry = Entry { path, what, mode, user, group, modified, extended };
    let refused = tarball.add(&entry, io::repeat(0)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge, "{refused}");
}
