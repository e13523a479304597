//! What fuzz targets call.

use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use osb_sys::{rootless::Rights, unpack::Foundation, userns::IdBase};

use crate::{
    Limits, UnpackError,
    archive::{END, Packed, padding},
    unpack::{Unpacker, write},
};

/// Unpacks an archive to `files` in `around`, on top of these layers, topmost first. On this thread, and
/// with nothing that keeps it from what lies around.
pub fn unpack(archive: &[u8], around: &Path, below: &[PathBuf]) -> Result<u64, UnpackError> {
    let limits = Limits { layer: 1 << 20, entries: 1000, ..Limits::default() };
    let stop = AtomicBool::new(false);
    let unpacker =
        Unpacker { owners: IdBase(0), rights: Rights::Root, limits: &limits, stop: &stop };
    let foundation = Foundation::open(below).map_err(UnpackError::Prepare)?;
    write(unpacker, archive, around, foundation)
}

/// An entry of an archive, with a description before it if that is not empty.
pub fn entry(
    kind: u8,
    mode: u32,
    path: &[u8],
    link: &[u8],
    content: &[u8],
    described: &[u8],
) -> Vec<u8> {
    let mut packed = Packed::new(kind, path, content.len() as u64).mode(mode);
    packed.set(157, link.get(..100).unwrap_or(link));
    if !described.is_empty() {
        packed = packed.described(b'x', described);
    }
    [packed.bytes().as_slice(), content, padding(content.len() as u64)].concat()
}

pub fn end() -> &'static [u8] {
    &END
}
