//! What files are, apart from when they were written.

use std::{io, os::unix::ffi::OsStrExt};

use osb_image::Kind;
use osb_registry::{Algorithm, Verifier};

use super::{Files, Owners, TransferError, pick::Picked, read};
use crate::{
    ignore::Ignore,
    key::{CacheKey, Key},
};

/// The key of all that was picked: names, kinds, rights and content, and owners where they matter.
pub(crate) fn digest(
    files: &Files<'_>,
    picked: &[Picked],
    exclude: &Ignore,
) -> Result<CacheKey, TransferError> {
    let mut key = Key::new("files").with_number(picked.len() as u64);
    for picked in picked {
        key.add(picked.name.as_bytes());
        key = key.with_some(picked.keeps.as_ref().map(|path| path.as_os_str().as_bytes()));
        key.add(if picked.seen.kind == Kind::Directory { "directory" } else { "file" });
        files.walk(picked, exclude, &mut |visit| {
            let path = picked.at.join(visit.path);
            let seen = &visit.seen;
            key.add(visit.path.as_os_str().as_bytes());
            key.add(seen.mode.to_le_bytes());
            if files.owners == Owners::Kept {
                key.add([seen.user.to_le_bytes(), seen.group.to_le_bytes()].concat());
                for (name, value) in read(&path, visit.around.extended(visit.name))? {
                    key.add(name);
                    key.add(value);
                }
            }
            match seen.kind {
                Kind::File => {
                    let mut verifier = files.asker.watch(Verifier::new(Algorithm::Sha256));
                    let mut file = read(&path, visit.around.open(visit.name))?;
                    read(&path, io::copy(&mut file, &mut verifier))?;
                    key.add(verifier.into_inner().finish().as_str());
                }
                Kind::Symlink => {
                    key.add("link");
                    key.add(read(&path, visit.around.read_link(visit.name))?);
                }
                Kind::Directory => key.add("directory"),
                Kind::Fifo => key.add("pipe"),
                // They are refused on the way.
                Kind::Socket | Kind::Device | Kind::Whiteout => {}
            }
            Ok(())
        })?;
    }
    Ok(key.finish())
}
