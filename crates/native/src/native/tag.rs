//! Whose control groups are whose.
//!
//! All servers of a host share one tree of control groups. Each data directory has a tag, and the
//! groups of its sandboxes are below the group of that name, so that one is known to be of this
//! data directory even if nothing else is left of its sandbox.

use std::{collections::HashSet, io, path::Path};

use osb_api::SandboxId;
use osb_sys::fs::{self, PathError};

use super::{Native, clear::empty};
use crate::sandbox::Place;

/// In the data directory: its tag.
const FILE: &str = "group";

/// The tag of a data directory, made if it has none. The caller has locked the directory.
pub(super) fn of(data_dir: &Path) -> Result<String, PathError> {
    let path = data_dir.join(FILE);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // A host that lost power may have lost it, and every group with it.
        read => {
            if let Some(tag) = read.ok().and_then(|text| text.parse::<SandboxId>().ok()) {
                return Ok(tag.to_string());
            }
        }
    }
    // As random as an id, and as fit to be the name of a group.
    let tag = SandboxId::random().to_string();
    fs::write_whole(path, tag.as_bytes(), 0o600)?;
    Ok(tag)
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
