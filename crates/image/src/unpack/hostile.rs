//! Layers that are meant to do harm: each is refused with the entry named, or does none.

use std::{io::Write as _, os::unix::fs::MetadataExt};

use osb_sys::fs;

use crate::{
    Limits, UnpackError,
    archive::Packed,
    trial::{Place, Tar, record},
};

/// What is around the layers, which nothing may change.
fn around(place: &Place) -> Vec<String> {
    let mut names = fs::names(place.root.path()).unwrap();
    names.retain(|name| !name.starts_with("layer-"));
    names
}

#[test]
fn paths_that_lead_upwards_are_refused() {
    let Some(mut place) = Place::new() else { return };
    for path in ["../canary", "a/../../canary", "..", "a/..", "./../../../../../../../tmp/osb-x"] {
        for kind in *b"0125" {
            let mut packed = Packed::new(kind, path.as_bytes(), 0);
            packed.set(157, b"a/b");
            let refusal = place.refusal(&Tar::new().file("a/b", "").entry(packed, b"").end());
            assert!(refusal.contains("upwards") && refusal.contains(path), "{refusal}");
        }
    }
    let refusal = place.refusal(&Tar::new().hard_link("x", "../canary").end());
    assert!(refusal.contains("upwards") && refusal.contains("\"x\""), "{refusal}");
    let refusal = place.refusal(&Tar::new().file("a/../.wh.canary", "").end());
    assert!(refusal.contains("upwards"), "{refusal}");
    assert_eq!(around(&place), ["canary"]);
}

#[test]
fn absolute_paths_begin_at_the_root_of_the_layer() {
    let Some(mut place) = Place::new() else { return };
    let canary = place.root.path().join("canary");
    let canary = canary.to_str().unwrap();
    place.unpack(&Tar::new().file(canary, "croaks").file("//etc/x", "").end()).unwrap();
    assert_eq!(fs::read_to_string(place.at(&canary[1..])).unwrap(), "croaks");
    assert!(place.at("etc/x").exists());
    let refusal = place.refusal(&Tar::new().hard_link("x", "/etc/passwd").end());
    assert!(refusal.contains("not there"), "{refusal}");
}

#[test]
fn links_on_the_way_lead_nowhere_else() {
    let Some(mut place) = Place::new() else { return };
    let outside = place.root.path().to_str().unwrap().to_owned();
    for target in [outside.as_str(), "../../..", "../../../../../../../../../../tmp"] {
        let archive = Tar::new()
            .symlink("out", target)
            .file("out/canary", "croaks")
            .directory("out/made", 0o777)
            .symlink("out/link", "/etc")
            .hard_link("out/again", "out/canary")
            .file("out/.wh.gone", "")
            .file("out/.wh..wh..opq", "")
            .end();
        place.unpack(&archive).unwrap();
        assert_eq!(around(&place), ["canary"]);
        // The link itself is left as it is.
        assert_eq!(place.at("out").read_link().unwrap().to_str(), Some(target));
    }
    // Through a link in a layer below.
    place.unpack(&Tar::new().file("out/canary", "croaks").end()).unwrap();
    assert_eq!(around(&place), ["canary"]);
}

#[test]
fn a_file_is_not_written_through_a_link_of_its_name() {
    let Some(mut place) = Place::new() else { return };
    let outside = place.root.path().join("canary").to_str().unwrap().to_owned();
    let before = place.root.path().metadata().unwrap();
    let archive = Tar::new()
        .symlink("a", &outside)
        .file("a", "croaks")
        .symlink("b", &outside)
        .hard_link("c", "b")
        .file("c", "croaks")
        .symlink("d", "../..")
        .directory("d", 0o7777)
        .end();
    place.unpack(&archive).unwrap();
    assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "croaks");
    assert_eq!(place.at("b").read_link().unwrap().to_str(), Some(outside.as_str()));
    assert!(place.at("d").symlink_metadata().unwrap().is_dir());
    assert_eq!(place.root.path().metadata().unwrap().mode(), before.mode());
}

#[test]
fn other_names_are_for_files_of_the_image_alone() {
    let Some(mut place) = Place::new() else { return };
    let outside = place.root.path().join("canary").to_str().unwrap().to_owned();
    for (link, target) in [("x", "absent"), ("x", "d"), ("x", "."), ("x", "l/canary")] {
        let archive = Tar::new().directory("d", 0o755).symlink("l", "/../..");
        let refusal = place.refusal(&archive.hard_link(link, target).end());
        assert!(refusal.contains("\"x\""), "{refusal}");
    }
    // A link itself may have another name; what it leads to has none.
    let archive = Tar::new().symlink("l", &outside).hard_link("x", "l").hard_link("x", "x").end();
    place.unpack(&archive).unwrap();
    assert!(place.at("x").symlink_metadata().unwrap().is_symlink());
    // What a name replaces may hold the file that it is for.
    place.unpack(&Tar::new().file("a/b", "x").hard_link("a", "a/b").end()).unwrap();
    assert_eq!(fs::read_to_string(place.at("a")).unwrap(), "x");
}

#[test]
fn whiteouts_of_what_has_no_name_are_refused() {
    let Some(mut place) = Place::new() else { return };
    for path in [".wh.", "a/.wh.", ".wh..", ".wh...", "a/.wh.b/c", ".wh.a/.wh.b", ".wh.a/x"] {
        let refusal = place.refusal(&Tar::new().file(path, "").end());
        assert!(refusal.contains(path), "{refusal}");
    }
    // Of marks in the layer below, a mark says nothing.
    place.unpack(&Tar::new().file("a/b", "").symlink("l", "a").end()).unwrap();
    place.unpack(&Tar::new().file(".wh.l", "").file("a/.wh.b", "").end()).unwrap();
    place.unpack(&Tar::new().file(".wh.l", "").file("a/.wh.b", "").end()).unwrap();
    assert_eq!(fs::names(place.at("")).unwrap(), ["a"]);
    assert!(fs::names(place.at("a")).unwrap().is_empty());
}

#[test]
fn marks_of_the_overlay_are_not_an_archives_to_make() {
    let Some(mut place) = Place::new() else { return };
    place.unpack(&Tar::new().file("gone", "").file("dev/null", "").end()).unwrap();
    let device = |name: &[u8], kind| Packed::new(kind, name, 0).number(329, 8, 0).number(337, 8, 0);
    let text = record("SCHILY.xattr.trusted.overlay.opaque", b"y");
    let directory = Packed::new(b'5', b"dev", 0).described(b'x', &text);
    let archive = Tar::new()
        .entry(device(b"mark", b'3'), b"")
        .entry(device(b"gone", b'3'), b"")
        .entry(device(b"disk", b'4'), b"")
        .entry(directory, b"")
        .end();
    place.unpack(&archive).unwrap();
    assert!(!place.at("mark").exists() && !place.at("disk").exists());
    // What a device replaces is seen no more.
    assert_eq!(place.at("gone").symlink_metadata().unwrap().rdev(), 0);
    let mut value = [0; 8];
    let mark = rustix::fs::lgetxattr(place.at("dev"), "trusted.overlay.opaque", &mut value[..]);
    assert!(mark.is_err());
}

#[test]
fn a_file_in_the_way_of_a_directory_is_an_error() {
    let Some(mut place) = Place::new() else { return };
    place.unpack(&Tar::new().file("below", "").end()).unwrap();
    for path in ["file/x", "below/x"] {
        let refusal = place.refusal(&Tar::new().file("file", "").file(path, "").end());
        assert!(refusal.contains(path) && refusal.contains("in the way"), "{refusal}");
    }
    for (path, kind) in [("", b'0'), ("./", b'2'), ("/", b'6'), (".", b'1')] {
        let mut packed = Packed::new(kind, path.as_bytes(), 0);
        packed.set(157, b"x");
        if path.is_empty() || kind != b'0' {
            place.refusal(&Tar::new().file("x", "").entry(packed, b"").end());
        }
    }
}

#[test]
fn layers_that_are_too_much_are_refused() {
    let Some(mut place) = Place::new() else { return };
    let small = Limits { layer: 1 << 20, entries: 10, path: 100, depth: 5, ..Limits::default() };
    place.limits = small;
    let large = "x".repeat((1 << 20) + 1);
    assert!(place.refusal(&Tar::new().file("large", &large).end()).contains("1048576 bytes"));
    let many = (0..11).fold(Tar::new(), |tar, number| tar.file(&number.to_string(), ""));
    assert!(place.refusal(&many.end()).contains("more than 10 entries"));
    let refusal = place.refusal(&Tar::new().file("a/b/c/d/e/f", "").end());
    assert!(refusal.contains("5 directories deep") && refusal.contains("a/b/c"), "{refusal}");
    let text = record("path", "p".repeat(101).as_bytes());
    let long = Tar::new().entry(Packed::new(b'0', b"x", 0).described(b'x', &text), b"").end();
    assert!(place.refusal(&long).contains("longer than 100"));
    let text = record("linkpath", "p".repeat(101).as_bytes());
    let long = Tar::new().entry(Packed::new(b'2', b"x", 0).described(b'x', &text), b"").end();
    assert!(place.refusal(&long).contains("longer than 100"));
    // A copy of a file of a layer below counts, too.
    place.limits = Limits::default();
    place.unpack(&Tar::new().file("large", &large).end()).unwrap();
    place.limits = small;
    assert!(place.refusal(&Tar::new().hard_link("x", "large").end()).contains("1048576 bytes"));
}

#[test]
fn what_swells_too_much_is_refused() {
    let Some(mut place) = Place::new() else { return };
    place.limits = Limits { unproven: 1 << 20, ratio: 100, ..Limits::default() };
    let archive = Tar::new().file("zeros", &"\0".repeat(16 << 20)).end();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&archive).unwrap();
    for blob in [gzip.finish().unwrap(), zstd::stream::encode_all(&archive[..], 19).unwrap()] {
        assert!(place.refusal(&blob).contains("100 times its size"));
    }
    // Content after the end of the archive is content all the same.
    let after = [Tar::new().end(), vec![0; 16 << 20]].concat();
    let blob = zstd::stream::encode_all(&after[..], 19).unwrap();
    assert!(place.refusal(&blob).contains("100 times its size"));
    place.unpack(&after).unwrap();
}

#[test]
fn names_that_no_file_system_takes_are_refused() {
    let Some(mut place) = Place::new() else { return };
    let text = record("path", format!("d/{}", "n".repeat(256)).as_bytes());
    let refusal = place
        .refusal(&Tar::new().entry(Packed::new(b'0', b"x", 0).described(b'x', &text), b"").end());
    assert!(refusal.contains("longer than file systems take"), "{refusal}");
    let text = record("path", b"a\0b");
    let packed = Packed::new(b'0', b"x", 0).described(b'x', &text);
    assert!(place.refusal(&Tar::new().entry(packed, b"").end()).contains("described wrongly"));
    let long = vec![b'x'; (1 << 20) + 1];
    let packed = Packed::new(b'0', b"x", 0).described(b'L', &long);
    assert!(place.refusal(&Tar::new().entry(packed, b"").end()).contains("too great length"));
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    let Some(mut place) = Place::new() else { return };
    let refuse = |place: &mut Place, packed: Packed| {
        place.refusal(&Tar::new().file("first", "").entry(packed, b"").end())
    };
    let mut negative = Packed::new(b'0', b"x", 0);
    negative.set(124, &[0xff; 12]);
    assert!(refuse(&mut place, negative).contains("impossible size"));
    for size in ["-1", "9223372036854775808", "x"] {
        let text = record("size", size.as_bytes());
        let packed = Packed::new(b'0', b"x", 0).described(b'x', &text);
        assert!(refuse(&mut place, packed).contains("described wrongly"), "{size}");
    }
    let huge = Packed::new(b'0', b"x", i64::MAX.cast_unsigned());
    assert!(refuse(&mut place, huge).contains("ends in the middle"));
    let mut wrong = Packed::new(b'0', b"x", 0);
    wrong.set(136, b"notanumber!!");
    assert!(refuse(&mut place, wrong).contains("not one that tar writes"));
    // Times at the end of all days are made the nearest that the disk has.
    let texts = ["9223372036854775807", "-9223372036854775807.5"];
    let entries = texts.iter().fold(Tar::new(), |tar, text| {
        let described = record("mtime", text.as_bytes());
        tar.entry(Packed::new(b'0', text.as_bytes(), 0).described(b'x', &described), b"")
    });
    place.unpack(&entries.end()).unwrap();
    assert!(place.at(texts[0]).metadata().unwrap().mtime() > 1 << 31);
    // The same for holes that are larger than any file.
    let text = [
        record("GNU.sparse.size", b"9223372036854775807"),
        record("GNU.sparse.map", b"9223372036854775000,1"),
    ];
    let packed = Packed::new(b'0', b"x", 1).described(b'x', &text.concat());
    let refusal = place.refusal(&Tar::new().entry(packed, b"x").end());
    assert!(refusal.contains("larger than file systems take"), "{refusal}");
    for map in ["5,5,1,1", "0,2,1,1", "0,9", "18446744073709551615,1", "0", "a,b", "0,1"] {
        let text = [record("GNU.sparse.size", b"8"), record("GNU.sparse.map", map.as_bytes())];
        let packed = Packed::new(b'0', b"x", 2).described(b'x', &text.concat());
        let refusal = place.refusal(&Tar::new().entry(packed, b"xy").end());
        assert!(refusal.contains("holes"), "{map}: {refusal}");
    }
}

#[test]
fn broken_archives_are_refused() {
    let Some(mut place) = Place::new() else { return };
    let whole = Tar::new().file("first", "content").file("second", "content").end();
    for cut in [1, 511, 513, 1023, 1025, 1535, 1537] {
        let refusal = place.refusal(&whole[..cut]);
        assert!(refusal.contains("ends in the middle"), "{cut}: {refusal}");
    }
    place.unpack(&whole[..1024]).unwrap();
    let mut flipped = whole.clone();
    flipped[1024 + 3] ^= 1;
    assert!(place.refusal(&flipped).contains("after \"first\""));
    let kind = Tar::new().entry(Packed::new(b'Z', b"x", 0), b"").end();
    assert!(place.refusal(&kind).contains("not known"));
    let after = [Tar::new().file("x", "").0, vec![0; 512], Tar::new().file("y", "").end()].concat();
    assert!(place.refusal(&after).contains("after its end"));
    assert!(matches!(place.unpack(b"\x1f\x8bgarbage"), Err(UnpackError::Layer(_))));
    place.unpack(b"").unwrap();
}

#[test]
fn an_entry_that_comes_again_replaces_the_first() {
    let Some(mut place) = Place::new() else { return };
    let archive = Tar::new()
        .file("f", "first")
        .hard_link("again", "f")
        .file("f", "second")
        .directory("d", 0o700)
        .file("d/x", "")
        .directory("d", 0o711)
        .symlink("s", "one")
        .symlink("s", "two")
        .end();
    place.unpack(&archive).unwrap();
    assert_eq!(fs::read_to_string(place.at("f")).unwrap(), "second");
    assert_eq!(fs::read_to_string(place.at("again")).unwrap(), "first");
    assert_eq!(place.at("d").metadata().unwrap().mode() & 0o777, 0o711);
    assert!(place.at("d/x").exists());
    assert_eq!(place.at("s").read_link().unwrap().to_str(), Some("two"));
}
