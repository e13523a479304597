use std::{
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt},
    path::PathBuf,
};

use osb_core::testkit::required;
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, makedev, setxattr};
use tempfile::TempDir;

use super::*;

const BASE: IdBase = IdBase(0x4000_0000);

/// A tree to copy, and what became of it.
struct Trial {
    root: TempDir,
}

impl Trial {
    /// None where this process may not give files away.
    fn new() -> Option<Self> {
        if !required("root", rustix::process::geteuid().is_root()) {
            return None;
        }
        // Not in memory: what holds for a file system there is not what holds on a disk.
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::create_dir(root.path().join("upper"), 0o755).unwrap();
        fs::chown(root.path().join("upper"), BASE.0, BASE.0).unwrap();
        Some(Self { root })
    }

    fn upper(&self, name: &str) -> PathBuf {
        self.root.path().join("upper").join(name)
    }

    fn layer(&self, name: &str) -> PathBuf {
        self.root.path().join("layer").join(name)
    }

    /// A file of the sandbox's root.
    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.upper(name);
        fs::write(&path, content).unwrap();
        fs::chown(&path, BASE.0, BASE.0).unwrap();
        path
    }

    fn copy(&self) -> io::Result<Copied> {
        self.copy_unless(&AtomicBool::new(false))
    }

    fn copy_unless(&self, stop: &AtomicBool) -> io::Result<Copied> {
        let upper = open(CWD, self.root.path().join("upper")).unwrap();
        copy(upper.as_fd(), self.root.path(), BASE, Rights::Root, stop)
    }
}

#[test]
fn owners_modes_and_times_are_those_that_are_seen_inside() {
    let Some(trial) = Trial::new() else { return };
    let file = trial.write("own", "content");
    fs::chown(&file, BASE.0 + 1000, BASE.0 + 5).unwrap();
    fs::set_mode(&file, 0o4751).unwrap();
    fs::set_mode(trial.write("host", "x"), 0o6755).unwrap();
    fs::chown(trial.upper("host"), 0, BASE.0 + 5).unwrap();
    fs::set_mode(trial.upper("host"), 0o6755).unwrap();
    fs::create_dir(trial.upper("directory"), 0o755).unwrap();
    fs::chown(trial.upper("directory"), BASE.0, BASE.0).unwrap();
    fs::set_mode(trial.upper("directory"), 0o3777).unwrap();
    trial.write("directory/in it", "");
    let before = trial.upper("directory").metadata().unwrap();
    let copied = trial.copy().unwrap();
    assert_eq!(copied.bytes, 8);
    let own = trial.layer("own").metadata().unwrap();
    assert_eq!((own.uid(), own.gid(), own.mode() & 0o7777), (1000, 5, 0o4751));
    assert_eq!(own.mtime_nsec(), file.metadata().unwrap().mtime_nsec());
    let host = trial.layer("host").metadata().unwrap();
    assert_eq!((host.uid(), host.gid(), host.mode() & 0o7777), (65_534, 5, 0o2755));
    let directory = trial.layer("directory").metadata().unwrap();
    assert_eq!((directory.uid(), directory.mode() & 0o7777), (0, 0o3777));
    assert_eq!(directory.mtime_nsec(), before.mtime_nsec());
    assert_eq!(trial.layer("").metadata().unwrap().mode() & 0o7777, 0o755);
    assert!(!trial.root.path().join("links").exists());
}

#[test]
fn links_are_copied_and_not_followed() {
    let Some(trial) = Trial::new() else { return };
    fs::symlink("/etc/shadow", trial.upper("shadow")).unwrap();
    fs::symlink("/etc", trial.upper("etc")).unwrap();
    fs::symlink("..", trial.upper("up")).unwrap();
    let long = "x/".repeat(2000);
    fs::symlink(&long, trial.upper("long")).unwrap();
    trial.copy().unwrap();
    for (name, target) in
        [("shadow", "/etc/shadow"), ("etc", "/etc"), ("up", ".."), ("long", &long)]
    {
        assert_eq!(trial.layer(name).read_link().unwrap(), Path::new(target));
    }
}

#[test]
fn one_file_with_many_names_stays_one_file() {
    let Some(trial) = Trial::new() else { return };
    let first = trial.write("first", "the same");
    for number in 0..2000 {
        let name = trial.upper(&format!("name {number}"));
        linkat(CWD, &first, CWD, &name, AtFlags::empty()).unwrap();
    }
    let copied = trial.copy().unwrap();
    let copy = trial.layer("first").metadata().unwrap();
    assert_eq!((copied.bytes, copy.nlink()), (8, 2001));
    assert_eq!(trial.layer("name 1999").metadata().unwrap().ino(), copy.ino());
}

#[test]
fn special_files_and_odd_names_are_copied_without_being_opened() {
    let Some(trial) = Trial::new() else { return };
    let make = |name: &str, kind, device| {
        mknodat(CWD, trial.upper(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
    };
    make("pipe", FileType::Fifo, 0);
    make("socket", FileType::Socket, 0);
    make("gone", FileType::CharacterDevice, 0);
    make("disk", FileType::BlockDevice, makedev(8, 0));
    make("memory", FileType::CharacterDevice, makedev(1, 1));
    for name in ["gone too", "gone as well"] {
        linkat(CWD, trial.upper("gone"), CWD, trial.upper(name), AtFlags::empty()).unwrap();
    }
    trial.write("with\nnewline", "x");
    trial.write(&"l".repeat(255), "x");
    trial.copy().unwrap();
    let kind = |name: &str| trial.layer(name).symlink_metadata().unwrap().file_type();
    assert!(kind("pipe").is_fifo() && kind("socket").is_socket());
    for name in ["gone", "gone too", "gone as well"] {
        assert!(kind(name).is_char_device());
        assert_eq!(trial.layer(name).symlink_metadata().unwrap().rdev(), 0);
    }
    assert!(!trial.layer("disk").exists() && !trial.layer("memory").exists());
    assert!(trial.layer("with\nnewline").exists() && trial.layer(&"l".repeat(255)).exists());
}

#[test]
fn holes_stay_holes() {
    let Some(trial) = Trial::new() else { return };
    let path = trial.write("sparse", "");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    file.write_all_at(b"middle", 1 << 39).unwrap();
    file.write_all_at(b"end", (1 << 40) - 3).unwrap();
    let copied = trial.copy().unwrap();
    let copy = trial.layer("sparse").metadata().unwrap();
    assert_eq!(copy.len(), 1 << 40);
    assert!(copy.blocks() * 512 < 1 << 20, "it takes {} blocks", copy.blocks());
    assert!(copied.bytes < 1 << 20, "{} bytes were copied", copied.bytes);
    let mut read = [0; 6];
    fs::open(trial.layer("sparse")).unwrap().read_exact_at(&mut read, 1 << 39).unwrap();
    assert_eq!(&read, b"middle");
}

#[test]
fn a_tree_deeper_than_any_path_is_copied() {
    let Some(trial) = Trial::new() else { return };
    let mut at = open(CWD, trial.root.path().join("upper")).unwrap();
    for _ in 0..3000 {
        mkdirat(&at, c"d", Mode::RWXU).unwrap();
        at = open(&at, c"d").unwrap();
    }
    mkdirat(&at, c"bottom", Mode::RWXU).unwrap();
    trial.copy().unwrap();
    let mut at = open(CWD, trial.root.path().join("layer")).unwrap();
    for _ in 0..3000 {
        at = open(&at, c"d").unwrap();
    }
    assert!(statat(&at, c"bottom", AtFlags::empty()).is_ok());
    // The directory's own removal does not go that deep.
    tree::remove(&trial.root.path().join("upper")).unwrap();
    tree::remove(&trial.root.path().join("layer")).unwrap();
}

#[test]
fn attributes_are_kept_that_mean_the_same_elsewhere() {
    let Some(trial) = Trial::new() else { return };
    let set = |name: &str, key: &str, value: &[u8]| {
        setxattr(trial.upper(name), key, value, XattrFlags::empty()).unwrap();
    };
    trial.write("file", "x");
    fs::create_dir(trial.upper("hides"), 0o755).unwrap();
    set("hides", "trusted.overlay.opaque", b"y");
    set("hides", "trusted.overlay.impure", b"y");
    set("file", "trusted.overlay.origin", b"elsewhere");
    set("file", "trusted.other", b"x");
    set("file", "user.note", b"kept");
    set("file", "user.empty", b"");
    set("file", "user.large", &[7; 3000]);
    let mut powers = vec![1, 0, 0, 3];
    powers.extend([0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    powers.extend(BASE.0.to_le_bytes());
    set("file", "security.capability", &powers);
    let entry = |tag: u16, rights: u16, id: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let list = |user: u32| {
        let none = u32::MAX;
        let entries = [entry(1, 6, none), entry(2, 4, user), entry(4, 4, none)];
        let rest = [entry(0x10, 4, none), entry(0x20, 0, none)];
        [2_u32.to_le_bytes().to_vec(), entries.concat(), rest.concat()].concat()
    };
    set("file", "system.posix_acl_access", &list(BASE.0 + 7));
    trial.copy().unwrap();
    let get = |name: &str, key: &str| {
        let mut value = [0; 4096];
        lgetxattr(trial.layer(name), key, &mut value[..]).ok().map(|count| value[..count].to_vec())
    };
    assert_eq!(get("hides", "trusted.overlay.opaque").unwrap(), b"y");
    assert_eq!(get("file", "user.note").unwrap(), b"kept");
    assert_eq!(get("file", "user.empty").unwrap(), b"");
    assert_eq!(get("file", "user.large").unwrap(), [7; 3000]);
    assert_eq!(get("file", "system.posix_acl_access").unwrap(), list(7));
    let kept = get("file", "security.capability").unwrap();
    assert_eq!((kept.len(), kept[3], kept[5]), (20, 2, 4), "{kept:?}");
    let mut names = [0; 4096];
    let count = llistxattr(trial.layer("file"), &mut names[..]).unwrap();
    let names = String::from_utf8_lossy(&names[..count]).into_owned();
    assert!(!names.contains("trusted."), "{names:?}");
    assert_eq!(get("hides", "trusted.overlay.impure"), None);
}

#[test]
fn a_file_that_is_not_whole_is_not_taken_for_one() {
    let Some(trial) = Trial::new() else { return };
    let file = trial.write("file", "x");
    setxattr(&file, "trusted.overlay.metacopy", b"", XattrFlags::empty()).unwrap();
    let error = trial.copy().unwrap_err();
    assert!(error.to_string().contains("another layer"), "{error}");
}

#[test]
fn a_copy_can_be_broken_off() {
    let Some(trial) = Trial::new() else { return };
    trial.write("file", "x");
    let error = trial.copy_unless(&AtomicBool::new(true)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
}
