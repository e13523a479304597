//! Layers with whatever is likely to go wrong, packed by GNU tar.

use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
};

use osb_sys::fs;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, makedev, mknodat,
    utimensat,
};

use crate::run;

/// A tree that becomes a layer.
struct Made {
    root: PathBuf,
    /// What is packed, in this order, and the times that it has.
    names: Vec<(Vec<u8>, Option<Timestamps>)>,
}

impl Made {
    fn new(root: PathBuf) -> Self {
        fs::create_dir_all(&root).unwrap();
        Self { root, names: Vec::new() }
    }

    fn at(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.root.join(name.as_ref())
    }

    /// Notes an entry, which will have a time of its own.
    fn pack(&mut self, name: impl AsRef<OsStr>) {
        let seconds = 1_000_000_000 + 1_000 * i64::try_from(self.names.len()).unwrap();
        let moment = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: moment, last_modification: moment };
        self.names.push((name.as_ref().as_bytes().to_vec(), Some(times)));
    }

    fn directory(&mut self, name: &str, mode: u32, owner: u32) {
        fs::create_dir_all(self.at(name)).unwrap();
        fs::chown(self.at(name), owner, owner + 1).unwrap();
        fs::set_mode(self.at(name), mode).unwrap();
        self.pack(name);
    }

    fn file(&mut self, name: impl AsRef<OsStr>, content: impl AsRef<[u8]>) {
        let path = self.at(name.as_ref());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_mode(&path, 0o644).unwrap();
        self.pack(name);
    }

    fn special(&mut self, name: &str, mode: u32, owner: u32) {
        self.file(name, name);
        fs::chown(self.at(name), owner, owner + 7).unwrap();
        fs::set_mode(self.at(name), mode).unwrap();
    }

    fn symlink(&mut self, name: &str, target: &str) {
        fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        fs::symlink(target, self.at(name)).unwrap();
        fs::chown(self.at(name), 12, 13).unwrap();
        self.pack(name);
    }

    fn link(&mut self, name: &str, original: &str) {
        fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        rustix::fs::link(self.at(original), self.at(name)).unwrap();
        self.names.push((name.as_bytes().to_vec(), None));
    }

    fn attribute(&mut self, name: &str, key: &str, value: &[u8]) {
        lsetxattr(self.at(name), key, value, XattrFlags::empty()).unwrap();
    }

    /// Forgets what some reader cannot unpack.
    fn without(mut self, names: &[&str]) -> Self {
        self.names.retain(|(name, _)| !names.iter().any(|other| name == other.as_bytes()));
        self
    }

    /// Packs what was noted. Directories that were not are in no entry.
    fn tar(self, format: &str) -> PathBuf {
        let list = self.root.with_extension("list");
        let mut names = Vec::new();
        for (name, times) in &self.names {
            let path = self.at(OsStr::from_bytes(name));
            if let Some(times) = times {
                utimensat(CWD, path, times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
            }
            names.extend([name, &b"\0"[..]].concat());
        }
        fs::write(&list, names).unwrap();
        let archive = self.root.with_extension("tar");
        let mut arguments = vec![
            "--create",
            "--no-recursion",
            "--numeric-owner",
            "--null",
            "--verbatim-files-from",
        ];
        let format = format!("--format={format}");
        arguments.push(&format);
        if format.ends_with("pax") {
            // Of the other format umoci does not know the holes.
            arguments.extend(["--xattrs", "--xattrs-include=*", "--sparse"]);
        }
        let (root, list) = (self.root.to_str().unwrap(), list.to_str().unwrap());
        let from = format!("--files-from={list}");
        arguments.extend(["--directory", root, "--file", archive.to_str().unwrap(), &from]);
        run("tar", &arguments);
        archive
    }
}

pub(crate) fn layers(directory: &Path, format: &str) -> Vec<PathBuf> {
    layers_without(&[], directory, format)
}

/// The same without entries of these names.
pub(crate) fn layers_without(names: &[&str], directory: &Path, format: &str) -> Vec<PathBuf> {
    fs::create_dir_all(directory).unwrap();
    vec![
        base(Made::new(directory.join("base"))).without(names).tar(format),
        changes(Made::new(directory.join("changes"))).without(names).tar(format),
        more(Made::new(directory.join("more"))).without(names).tar(format),
    ]
}

/// Layers that change a little each.
pub(crate) fn many(directory: &Path, count: usize) -> Vec<PathBuf> {
    let layer = |number: usize| {
        let mut made = Made::new(directory.join(number.to_string()));
        made.file(format!("numbers/{number}"), number.to_string());
        made.file("last", number.to_string());
        if number % 3 == 2 {
            made.file(format!("numbers/.wh.{}", number - 1), "");
        }
        if number % 5 == 4 {
            made.file("turned/.wh..wh..opq", "");
        }
        made.file(format!("turned/{number}"), "");
        made.tar("pax")
    };
    (0..count).map(layer).collect()
}

/// A layer with devices, one of them where a file was.
pub(crate) fn devices(directory: &Path) -> PathBuf {
    let mut made = Made::new(directory.join("devices"));
    made.directory("sizes", 0o755, 0);
    for (name, kind) in [("null", FileType::CharacterDevice), ("sizes/1", FileType::BlockDevice)] {
        mknodat(CWD, made.at(name), kind, Mode::from_raw_mode(0o640), makedev(1, 3)).unwrap();
        made.pack(name);
    }
    made.tar("pax")
}

fn base(mut made: Made) -> Made {
    made.directory(".", 0o711, 0);
    made.directory("usr", 0o755, 0);
    made.directory("usr/lib", 0o755, 0);
    made.symlink("lib", "usr/lib");
    made.symlink("absolute", "/usr/lib");
    made.symlink("dangling", "no/where");
    made.symlink("above", "../../../..");
    made.directory("home", 0o755, 0);
    made.directory("home/user", 0o2770, 1000);
    made.directory("tmp", 0o1777, 0);
    made.directory("closed", 0o000, 0);
    for size in [0, 1, 511, 512, 513, 4096, 1 << 20] {
        made.file(format!("sizes/{size}"), vec![b'x'; size]);
    }
    made.special("bin/su", 0o4755, 0);
    made.special("bin/wall", 0o2755, 5);
    made.special("bin/other", 0o6711, 65_000);
    made.special("bin/sticky", 0o1644, 1);
    made.file("bin/ping", "ping");
    fs::chown(made.at("bin/ping"), 3, 4).unwrap();
    // Newlines in values have broken many a reader.
    made.attribute("bin/ping", "user.note", b"line\nline=\0end");
    let powers = [1, 0, 0, 2, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    made.attribute("bin/ping", "security.capability", &powers);
    made.directory("noted", 0o755, 0);
    made.attribute("noted", "user.directory", b"kept");
    made.file("bin/capable", "it has one name");
    made.attribute("bin/capable", "security.capability", &powers);
    made.link("bin/ping6", "bin/ping");
    made.link("sbin/ping", "bin/ping");
    made.file("holes", "");
    let file = fs::read_and_write(made.at("holes"), 0o644).unwrap();
    file.write_all_at(b"first", 1 << 20).unwrap();
    file.write_all_at(b"last", 30 << 20).unwrap();
    file.set_len(40 << 20).unwrap();
    drop(file);
    mknodat(CWD, made.at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    fs::set_mode(made.at("pipe"), 0o640).unwrap();
    made.pack("pipe");
    let long = ["long"; 60].join("/");
    made.file(format!("{long}/{}", "n".repeat(255)), "long");
    made.symlink("to-long", &long);
    made.file(OsStr::from_bytes(b"not\xfftext"), "bytes");
    made.file("with space\nand newline", "x");
    for name in ["gone", "turned", "kept", "again"] {
        made.directory(name, 0o750, 100);
        made.file(format!("{name}/old"), "old");
        made.file(format!("{name}/inner/old"), "old");
    }
    made.file("becomes-directory", "file");
    made.file("becomes-link", "file");
    made.file("removed", "file");
    made
}

fn changes(mut made: Made) -> Made {
    // Its directory is in this layer by this entry alone.
    made.file("home/user/.profile", "new");
    made.file("noted/new", "new");
    // The way leads through links of the layer below.
    made.file("lib/new.so", "new");
    made.file("absolute/other.so", "new");
    made.file(".wh.removed", "");
    made.file(".wh.gone", "");
    made.file(".wh.absent", "");
    made.file(".wh.dangling", "");
    made.file("kept/.wh.old", "");
    made.file("turned/.wh..wh..opq", "");
    made.file("turned/new", "new");
    made.directory("becomes-directory", 0o755, 0);
    made.file("becomes-directory/x", "x");
    made.symlink("becomes-link", "sizes");
    made.file(".wh.again", "");
    made.file("again/new", "new");
    made.file("bin/su", "changed without its bits");
    made
}

fn more(mut made: Made) -> Made {
    made.file("gone/back", "back");
    made.file("removed", "back");
    made.file("turned/old", "back");
    made.file("kept/inner/.wh.old", "");
    made.directory("usr/lib", 0o751, 0);
    made.file("dangling", "now a file");
    made.file("sizes/.wh.0", "");
    made.file(".wh.tmp", "");
    made
}
