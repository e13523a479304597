//! Layers of images: whatever an archive says, nothing outside of its layer changes, and what is
//! unpacked is nothing that the overlay or the kernel acts upon.
//!
//! An input that begins with `!` is an archive. Others are lines, from which one is written whose sums
//! are right: a kind, a mode, and path, link and content with tabs between them. A line with `=` ends a
//! layer; one that begins with `x` describes the next entry.
#![no_main]

use std::{
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use libfuzzer_sys::fuzz_target;
use osb_image::fuzz::{end, entry, unpack};

/// In memory where there is such a place: a disk would be what is tested.
static PLACE: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let place = place.expect("a place to unpack to");
    std::fs::write(place.path().join("canary"), "sings").expect("a canary");
    place
});

/// A record as pax writes it.
fn record(text: &[u8]) -> Vec<u8> {
    let mut length = text.len() + 3;
    while length.to_string().len() + text.len() + 2 != length {
        length += 1;
    }
    [format!("{length} ").as_bytes(), text, b"\n"].concat()
}

fn archives(data: &[u8]) -> Vec<Vec<u8>> {
    if let Some(archive) = data.strip_prefix(b"!") {
        return vec![archive.to_vec()];
    }
    let (mut all, mut archive, mut described) = (Vec::new(), Vec::new(), Vec::new());
    for line in data.split(|byte| *byte == b'\n') {
        match line {
            [] => {}
            [b'=', ..] => {
                archive.extend(end());
                all.push(std::mem::take(&mut archive));
            }
            [b'x', text @ ..] => described.extend(record(text)),
            [kind, mode, rest @ ..] => {
                let mut parts = rest.splitn(3, |byte| *byte == b'\t');
                let mut part = || parts.next().unwrap_or_default();
                let (path, link, content) = (part(), part(), part());
                let mode = u32::from(*mode) << 4;
                archive.extend(entry(*kind, mode, path, link, content, &described));
                described.clear();
            }
            _ => {}
        }
    }
    all.push(archive);
    all.truncate(4);
    all
}

fn walk(directory: &Path) {
    for found in std::fs::read_dir(directory).expect("a directory") {
        let path = found.expect("an entry").path();
        let metadata = path.symlink_metadata().expect("a file");
        let kind = metadata.file_type();
        assert!(!kind.is_block_device() && !kind.is_socket(), "{path:?} is a device");
        assert!(!kind.is_char_device() || metadata.rdev() == 0, "{path:?} is a device");
        assert!(metadata.uid() <= 65_535 && metadata.gid() <= 65_535, "{path:?}");
        if kind.is_dir() {
            walk(&path);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let place = PLACE.path();
    let mut below: Vec<PathBuf> = Vec::new();
    for (number, archive) in archives(data).iter().enumerate() {
        let around = place.join(number.to_string());
        std::fs::create_dir(&around).expect("a directory for the layer");
        match unpack(archive, &around, &below) {
            Ok(_) => {
                assert_eq!(std::fs::read_dir(&around).expect("the layer").count(), 1);
                walk(&around.join("files"));
                below.insert(0, around.join("files"));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let canary = std::fs::read_to_string(place.join("canary"));
    assert_eq!(canary.expect("the canary"), "sings");
    for found in std::fs::read_dir(place).expect("the place") {
        let path = found.expect("an entry").path();
        let name = path.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
        if name != "canary" {
            assert!(matches!(name, "0" | "1" | "2" | "3"), "{name} was made outside");
            osb_sys::tree::remove(&path).expect("it can be removed");
        }
    }
});
