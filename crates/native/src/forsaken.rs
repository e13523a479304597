//! Control groups whose data directory is gone.
//!
//! The group of a data directory bears a note of where that is, and a server holds its lock for as
//! long as it lives. So whoever finds the group can tell that nobody will come back to it.

use std::{fs::File, io, path::Path};

use osb_sys::{
    cgroup::Layout,
    fs::{self, PathError},
};
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, major, minor, readlink, stat};

use crate::{
    Count,
    native::{clear::empty, tag},
};

/// The attribute that is the note: a mount namespace, the device of the file system, and a path.
const NOTE: &str = "user.opensandbox.data";
const LONGEST_NOTE: usize = 8192;

/// Notes on the group of a data directory where that is.
pub(crate) fn note(group: &File, data_dir: &Path) -> io::Result<()> {
    let path = data_dir.canonicalize()?;
    let path = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
    let device = stat(path)?.st_dev;
    let namespace = mount_namespace().ok_or(io::ErrorKind::NotFound)?;
    let note = format!("{namespace} {}:{} {path}", major(device), minor(device));
    Ok(fsetxattr(group, NOTE, note.as_bytes(), XattrFlags::empty())?)
}

/// Ends every sandbox below `parent` whose data directory is certainly gone, and removes its group.
pub async fn clear_forsaken(parent: &str) -> Result<Count, PathError> {
    let mut count = Count::default();
    let Ok(layout) = Layout::usable() else { return Ok(count) };
    for tag in layout.names(parent)? {
        let group = layout.group(parent, &tag);
        let Ok(held) = group.open() else { continue };
        // A server may live on although somebody has deleted its directory. Groups of others are not
        // locked even for a moment: a server that starts would be refused.
        if !is_forsaken(&held, &tag) || held.try_lock().is_err() {
            continue;
        }
        for name in layout.names(&format!("{parent}/{tag}"))? {
            let below = layout.group(parent, &format!("{tag}/{name}"));
            let processes = below.processes().len();
            match empty(&below).await {
                Ok(()) => {
                    count.groups += 1;
                    count.processes += processes;
                }
                Err(error) => {
                    tracing::warn!(%error, group = name, "cannot clear a forsaken control group");
                }
            }
        }
        count.groups += usize::from(group.remove().is_ok());
    }
    Ok(count)
}

fn is_forsaken(group: &File, tag: &str) -> bool {
    let mut note = vec![0; LONGEST_NOTE];
    let Ok(length) = fgetxattr(group, NOTE, &mut note) else { return false };
    note.truncate(length);
    let Ok(note) = String::from_utf8(note) else { return false };
    let mut parts = note.splitn(3, ' ');
    let (Some(namespace), Some(device), Some(path)) = (parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    // Elsewhere, or on a disk that is not mounted now, it may well be there.
    mount_namespace().as_deref() == Some(namespace)
        && is_mounted(device)
        && tag::find(Path::new(path)).is_ok_and(|found| found.as_deref() != Some(tag))
}

fn mount_namespace() -> Option<String> {
    readlink("/proc/self/ns/mnt", Vec::new()).ok()?.into_string().ok()
}

fn is_mounted(device: &str) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(2) == Some(device))
}
