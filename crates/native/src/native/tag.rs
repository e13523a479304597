//! Whose control groups are whose.
//!
//! All servers of a host share one tree of control groups. Each data directory has a tag, and the
//! groups of its sandboxes are below the group of that name, so that one is known to be of this
//! data directory even if nothing else is left of its sandbox.

use std::{collections::HashSet, fs::File, io, path::Path};

use osb_api::SandboxId;
use osb_sys::{
    cgroup::Group,
    fs::{self, PathError},
};

use super::{Native, clear::empty};
use crate::{Traces, forsaken, sandbox::Place};

/// In the data directory: its tag.
const FILE: &str = "group";

/// The tag of a data directory, made if it has none. The caller has locked the directory.
pub(super) fn of(data_dir: &Path) -> Result<String, PathError> {
    if let Some(tag) = find(data_dir)? {
        return Ok(tag);
    }
    // As random as an id, and as fit to be the name of a group.
    let tag = SandboxId::random().to_string();
    fs::write_whole(data_dir.join(FILE), tag.as_bytes(), 0o600)?;
    Ok(tag)
}

/// The tag of a data directory, if it has one.
pub(crate) fn find(data_dir: &Path) -> Result<Option<String>, PathError> {
    match fs::read_to_string(data_dir.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // A host that lost power may have lost the text, and every group with it.
        read => Ok(read?.parse().ok().map(|tag: SandboxId| tag.to_string())),
    }
}

/// Takes the control group of a data directory, until the file is unlocked or closed. Where there are
/// no groups there is nothing to take.
pub(super) fn hold(group: &Group, data_dir: &Path) -> io::Result<Option<File>> {
    if !group.is_real() {
        return Ok(None);
    }
    let held = group.open().map_err(io::Error::other)?;
    if held.try_lock().is_err() {
        return Err(io::Error::other(format!(
            "another server uses those of the tag in {0}: if this data directory is a copy of \
             another, delete that file",
            data_dir.join(FILE).display()
        )));
    }
    if let Err(error) = forsaken::note(&held, data_dir) {
        tracing::warn!(%error, "should the data directory be deleted, its sandboxes are not found");
    }
    Ok(Some(held))
}

impl Native {
    /// The place of what an earlier server has left in `directory`, if nothing says more.
    pub(super) fn left_in(&self, directory: &Path, id: SandboxId) -> Place {
        // From before there were tags.
        let untagged = self.group(&id.to_string());
        if untagged.exists() {
            Place::new(directory, id, untagged)
        } else {
            self.place_in(directory, id)
        }
    }

    /// Those of the traces that are of known sandboxes.
    pub(crate) fn own(&self, traces: &Traces) -> Traces {
        let known = self.known();
        let groups = known.sandboxes.iter().map(|(id, entry)| match &entry.state.group {
            Some(name) => name.clone(),
            None => id.to_string(),
        });
        traces.of(&known.sandboxes.keys().copied().collect(), &groups.collect())
    }

    /// Clears away every control group of this data directory that is of no sandbox: the directory
    /// that told of it is gone.
    pub(super) async fn clear_groups(&self) -> Result<(), PathError> {
        let parent = format!("{}/{}", self.inner.config.cgroup_parent, self.inner.tag);
        let known: HashSet<_> = {
            let known = self.known();
            known.sandboxes.values().filter_map(|entry| entry.state.group.clone()).collect()
        };
        for name in self.inner.layout.names(&parent)? {
            let name = format!("{}/{name}", self.inner.tag);
            if known.contains(&name) {
                continue;
            }
            if let Err(error) = empty(&self.group(&name)).await {
                tracing::warn!(%error, group = name, "cannot clear a control group that a crash left");
            }
        }
        Ok(())
    }

    /// Removes the group that holds those of all sandboxes, if there are none. The next server makes
    /// it again.
    pub(super) fn leave_groups(&self) {
        self.group(&self.inner.tag).remove().ok();
    }
}
