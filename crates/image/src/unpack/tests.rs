//! Layers as well-meaning programs write them.

use std::{
    io::Write as _,
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt},
};

use osb_sys::fs;
use rustix::fs::{lgetxattr, llistxattr};

use crate::{
    archive::Packed,
    trial::{Place, Tar, digest, record},
};

fn attribute(place: &Place, path: &str, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 4096];
    let read = lgetxattr(place.at(path), name, &mut value[..]);
    read.ok().map(|count| value[..count].to_vec())
}

fn is_whiteout(place: &Place, path: &str) -> bool {
    place
        .at(path)
        .symlink_metadata()
        .is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == 0)
}

#[test]
fn entries_become_files_with_all_that_they_say() {
    let Some(mut place) = Place::new() else { return };
    let packed = Packed::new(b'0', b"etc/shadow", 6).mode(0o4640).number(108, 8, 1000);
    let packed = packed.number(116, 8, 42).described(b'x', &record("mtime", b"12.25"));
    let archive = Tar::new()
        .directory("./", 0o755)
        .directory("etc/", 0o1777)
        .entry(packed, b"secret")
        .symlink("etc/link", "../no/where")
        .hard_link("again", "./etc/shadow")
        .entry(Packed::new(b'6', b"pipe", 0).mode(0o620), b"")
        .end();
    let unpacked = place.unpack(&archive).unwrap();
    assert_eq!((unpacked.digest, unpacked.bytes), (digest(&archive), 6));
    let shadow = place.at("etc/shadow").metadata().unwrap();
    assert_eq!((shadow.uid(), shadow.gid(), shadow.mode() & 0o7777), (1000, 42, 0o4640));
    assert_eq!((shadow.mtime(), shadow.mtime_nsec()), (12, 250_000_000));
    assert_eq!(place.at("again").metadata().unwrap().ino(), shadow.ino());
    assert_eq!(place.at("etc").metadata().unwrap().mode() & 0o7777, 0o1777);
    assert_eq!(place.at("etc").metadata().unwrap().mtime(), 0);
    assert_eq!(place.at("etc/link").read_link().unwrap().to_str(), Some("../no/where"));
    let pipe = place.at("pipe").metadata().unwrap();
    assert!(pipe.file_type().is_fifo() && pipe.mode() & 0o777 == 0o620);
}

#[test]
fn what_is_gone_is_marked_for_the_overlay() {
    let Some(mut place) = Place::new() else { return };
    let below = Tar::new()
        .directory("a", 0o700)
        .file("a/kept", "x")
        .file("a/gone", "x")
        .directory("b", 0o755)
        .file("b/old", "x")
        .file("c", "x")
        .end();
    place.unpack(&below).unwrap();
    let above = Tar::new()
        .file("a/.wh.gone", "")
        .file("a/.wh.never", "")
        .file("b/.wh..wh..opq", "")
        .file("b/.wh.old", "")
        .file("b/new", "y")
        .file(".wh.c", "")
        .file(".wh..wh.plnk/1.2", "")
        .directory(".wh..wh.aufs", 0o755)
        .end();
    place.unpack(&above).unwrap();
    assert!(is_whiteout(&place, "a/gone") && is_whiteout(&place, "c"));
    assert!(!place.at("a/never").exists() && !place.at("b/old").exists());
    assert!(place.at("b/new").exists());
    assert_eq!(attribute(&place, "b", "trusted.overlay.opaque").unwrap(), b"y");
    assert_eq!(attribute(&place, "a", "trusted.overlay.opaque"), None);
    // What was not in the archive is as it is below.
    assert_eq!(place.at("a").metadata().unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::names(place.at("")).unwrap().len(), 3);
}

#[test]
fn a_whiteout_hides_what_is_below_and_not_what_is_beside_it() {
    let Some(mut place) = Place::new() else { return };
    let below = Tar::new().file("d/old", "x").file("e/old", "x").file("f", "x").end();
    place.unpack(&below).unwrap();
    let above = Tar::new()
        .directory("d", 0o755)
        .file("d/new", "y")
        .file(".wh.d", "")
        .file(".wh.e", "")
        .file("e/new", "y")
        .file(".wh.f", "")
        .file("f", "new")
        .end();
    place.unpack(&above).unwrap();
    for directory in ["d", "e"] {
        assert_eq!(attribute(&place, directory, "trusted.overlay.opaque").unwrap(), b"y");
        assert!(place.at(directory).join("new").exists());
    }
    assert_eq!(fs::read_to_string(place.at("f")).unwrap(), "new");
}

#[test]
fn directories_that_are_not_in_the_archive_are_those_of_the_layers_below() {
    let Some(mut place) = Place::new() else { return };
    let packed = Packed::new(b'5', b"home/user", 0).mode(0o2750).number(108, 8, 1000);
    let packed = packed.number(116, 8, 1001).number(136, 12, 77);
    let packed = packed.described(b'x', &record("SCHILY.xattr.user.note", b"kept"));
    let below = Tar::new().directory("./", 0o711).directory("home", 0o755).entry(packed, b"");
    place.unpack(&below.symlink("lib", "usr/lib").symlink("etc", "/conf").end()).unwrap();
    let above = Tar::new().file("home/user/.profile", "x").file("lib/so", "x").file("etc/x", "x");
    place.unpack(&above.file("fresh/file", "x").end()).unwrap();
    let user = place.at("home/user").metadata().unwrap();
    assert_eq!((user.uid(), user.gid(), user.mode() & 0o7777), (1000, 1001, 0o2750));
    assert_eq!(user.mtime(), 77);
    assert_eq!(attribute(&place, "home/user", "user.note").unwrap(), b"kept");
    assert_eq!(place.at("").metadata().unwrap().mode() & 0o7777, 0o711);
    // A link below is followed, and stays below.
    assert!(place.at("usr/lib/so").exists() && place.at("conf/x").exists());
    assert!(!place.at("lib").exists() && !place.at("etc").exists());
    let fresh = place.at("fresh").metadata().unwrap();
    assert_eq!((fresh.uid(), fresh.mode() & 0o7777), (0, 0o755));
}

#[test]
fn another_name_for_a_file_of_a_layer_below_brings_it_up() {
    let Some(mut place) = Place::new() else { return };
    let packed = Packed::new(b'0', b"bin/tool", 4).mode(0o4755).number(108, 8, 7);
    let packed = packed.described(b'x', &record("SCHILY.xattr.user.note", b"kept"));
    place.unpack(&Tar::new().directory("bin", 0o711).entry(packed, b"code").end()).unwrap();
    place.unpack(&Tar::new().hard_link("usr/bin/tool", "bin/tool").end()).unwrap();
    let (one, other) = (place.at("bin/tool"), place.at("usr/bin/tool"));
    assert_eq!(one.metadata().unwrap().ino(), other.metadata().unwrap().ino());
    let tool = other.metadata().unwrap();
    assert_eq!((tool.uid(), tool.mode() & 0o7777, tool.nlink()), (7, 0o4755, 2));
    assert_eq!(fs::read_to_string(other).unwrap(), "code");
    assert_eq!(attribute(&place, "bin/tool", "user.note").unwrap(), b"kept");
    assert_eq!(place.at("bin").metadata().unwrap().mode() & 0o7777, 0o711);
}

#[test]
fn a_file_in_the_place_of_a_directory_and_back_hides_what_was_below() {
    let Some(mut place) = Place::new() else { return };
    place.unpack(&Tar::new().file("d/old", "x").file("e/old", "x").end()).unwrap();
    let above = Tar::new()
        .file("d/first", "x")
        .file("d", "now a file")
        .file("d", "and another one")
        .directory("d", 0o755)
        .file("d/second", "y")
        .file("e/x/y", "")
        .file("e", "now a file")
        .end();
    place.unpack(&above).unwrap();
    assert_eq!(fs::names(place.at("d")).unwrap(), ["second"]);
    assert_eq!(attribute(&place, "d", "trusted.overlay.opaque").unwrap(), b"y");
    assert_eq!(fs::read_to_string(place.at("e")).unwrap(), "now a file");
}

#[test]
fn attributes_are_kept_that_are_an_archives_to_give() {
    let Some(mut place) = Place::new() else { return };
    let powers = [1, 0, 0, 2, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut with_root = powers.to_vec();
    with_root[3] = 3;
    with_root.extend([0; 4]);
    let text = [
        record("SCHILY.xattr.security.capability", &with_root),
        record("SCHILY.xattr.user.with\nnewline", b"a\nb"),
        record("SCHILY.xattr.user.empty", b""),
        record("SCHILY.xattr.user.overlay.opaque", b"y"),
        record("SCHILY.xattr.trusted.overlay.opaque", b"y"),
        record("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
        record("SCHILY.xattr.security.selinux", b"x"),
        record("SCHILY.xattr.system.data", b"x"),
    ];
    let packed = Packed::new(b'0', b"ping", 0).mode(0o755).number(108, 8, 5);
    place.unpack(&Tar::new().entry(packed.described(b'x', &text.concat()), b"").end()).unwrap();
    assert_eq!(attribute(&place, "ping", "security.capability").unwrap(), powers);
    assert_eq!(attribute(&place, "ping", "user.with\nnewline").unwrap(), b"a\nb");
    assert_eq!(attribute(&place, "ping", "user.empty").unwrap(), b"");
    let mut names = [0; 4096];
    let count = llistxattr(place.at("ping"), &mut names[..]).unwrap();
    let names = String::from_utf8_lossy(&names[..count]).into_owned();
    assert_eq!(names.matches('\0').count(), 3, "{names:?}");
}

#[test]
fn owners_that_no_sandbox_has_are_nobody_and_lend_nothing() {
    let Some(mut place) = Place::new() else { return };
    let packed = Packed::new(b'0', b"file", 0).mode(0o6755).number(108, 8, 70_000);
    let text = record("gid", b"99999999999");
    place.unpack(&Tar::new().entry(packed.described(b'x', &text), b"").end()).unwrap();
    let file = place.at("file").metadata().unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (65_534, 65_534, 0o755));
}

#[test]
fn compressed_layers_are_those_that_they_are_made_of() {
    let Some(mut place) = Place::new() else { return };
    let archive = Tar::new().file("file", &"x".repeat(100_000)).end();
    let (one, other) = archive.split_at(50_000);
    let gzip = |part: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(part).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |part: &[u8]| zstd::stream::encode_all(part, 1).unwrap();
    // Each of several parts is compressed on its own: programs that use many processors do that.
    for blob in [[gzip(one), gzip(other)].concat(), [zstd(one), zstd(other)].concat()] {
        assert_eq!(place.unpack(&blob).unwrap().digest, digest(&archive));
        assert_eq!(place.at("file").metadata().unwrap().len(), 100_000);
    }
    let cut = gzip(&archive);
    assert!(place.refusal(&cut[..cut.len() - 9]).contains("decompressed"));
}

#[test]
fn holes_are_holes_however_they_are_written() {
    let Some(mut place) = Place::new() else { return };
    let length = 1_u64 << 30;
    let (begin, end) = ("a".repeat(512), "z".repeat(512));
    let content = format!("{begin}{end}").into_bytes();
    let last = length - 512;
    // The header of GNU: parts of offset and length, and what the file is long.
    let gnu = Packed::new(b'S', b"gnu", 1024)
        .number(386, 12, 0)
        .number(398, 12, 512)
        .number(410, 12, last)
        .number(422, 12, 512)
        .number(483, 12, length);
    let map = format!("0,512,{last},512");
    let said = |version: &str| {
        let length = length.to_string();
        let mut text = record("GNU.sparse.realsize", length.as_bytes());
        text.extend(record("GNU.sparse.name", version.as_bytes()));
        text
    };
    let first = [said("pax-0.1"), record("GNU.sparse.map", map.as_bytes())].concat();
    let second = [said("pax-1.0"), record("GNU.sparse.major", b"1")].concat();
    let mut head = format!("2\n0\n512\n{last}\n512\n").into_bytes();
    head.resize(512, 0);
    let archive = Tar::new()
        .entry(gnu, &content)
        .entry(Packed::new(b'0', b"GNUSparseFile.0/x", 1024).described(b'x', &first), &content)
        .entry(
            Packed::new(b'0', b"GNUSparseFile.0/x", 1536).described(b'x', &second),
            &[head, content.clone()].concat(),
        )
        .file("after", "x")
        .end();
    place.unpack(&archive).unwrap();
    for name in ["gnu", "pax-0.1", "pax-1.0"] {
        let metadata = place.at(name).metadata().unwrap();
        assert_eq!(metadata.len(), length, "{name}");
        assert!(metadata.blocks() * 512 < 1 << 20, "{name} takes {} blocks", metadata.blocks());
        let mut read = [0; 512];
        fs::open(place.at(name)).unwrap().read_exact_at(&mut read, last).unwrap();
        assert_eq!(read, end.as_bytes(), "{name}");
    }
    assert!(place.at("after").exists());
}

#[test]
fn names_may_be_long_and_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    let Some(mut place) = Place::new() else { return };
    let long = ["d".repeat(200), "f".repeat(255)].join("/");
    let archive = Tar::new()
        .entry(Packed::new(b'0', b"short", 1).described(b'L', format!("{long}\0").as_bytes()), b"1")
        .entry(Packed::new(b'0', b"x", 1).described(b'x', &record("path", b"\xff\xfe")), b"2")
        .end();
    place.unpack(&archive).unwrap();
    assert_eq!(fs::read(place.at(&long)).unwrap(), b"1");
    let raw = place.at("").join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    assert_eq!(fs::read(raw).unwrap(), b"2");
}
