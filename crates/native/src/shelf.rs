//! Where snapshots are kept.
//!
//! A snapshot is made aside, in `unfinished`, and moved into place when it is whole:
//!
//! | in `snapshots/<id>` | what it is |
//! | --- | --- |
//! | `state.json` | what it stands on, and its size |
//! | `layer` | the files, with the ids that are seen inside |
//! | `deleted` | says that nobody may start from it any more, and that it stays for those who have |

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use osb_api::SnapshotId;
use osb_core::{ImageDigest, ImageName, Kept};
use osb_sys::fs::{self, PathError};
use serde::{Deserialize, Serialize};

/// The directories of a shelf, in the data directory.
pub(crate) const DIRECTORIES: [&str; 2] = ["snapshots", "unfinished"];

#[derive(Debug)]
pub(crate) struct Shelf {
    snapshots: PathBuf,
    unfinished: PathBuf,
}

/// What is written down about a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) image: ImageName,
    /// The very image; `host` is known by its name alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<ImageDigest>,
    /// The snapshots that it stands on, nearest first.
    pub(crate) below: Vec<SnapshotId>,
    pub(crate) bytes: u64,
}

impl Shelf {
    pub(crate) fn new(data_dir: &Path) -> Self {
        let [snapshots, unfinished] = DIRECTORIES.map(|name| data_dir.join(name));
        Self { snapshots, unfinished }
    }

    /// An empty directory in which a snapshot is made.
    pub(crate) fn begin(&self, id: SnapshotId) -> Result<PathBuf, PathError> {
        let aside = self.unfinished.join(id.to_string());
        fs::create_dir(&aside, 0o700)?;
        Ok(aside)
    }

    /// Puts a snapshot that is whole on the shelf.
    pub(crate) fn finish(&self, id: SnapshotId, label: &Label) -> Result<(), PathError> {
        let aside = self.unfinished.join(id.to_string());
        let path = aside.join("state.json");
        let text = serde_json::to_vec(label).map_err(io::Error::from);
        let text = text.map_err(|error| PathError::new("write", &path, error))?;
        fs::write_whole(path, &text, 0o600)?;
        fs::rename(aside, self.at(id))
    }

    /// Moves what was not finished to `removed`. Absence is success.
    pub(crate) fn abandon(
        &self,
        id: SnapshotId,
        removed: &Path,
    ) -> Result<Option<PathBuf>, PathError> {
        let name = id.to_string();
        fs::put_aside(self.unfinished.join(&name), removed.join(name))
    }

    /// What a crash left unfinished.
    pub(crate) fn unfinished(&self) -> Result<Vec<SnapshotId>, PathError> {
        ids(&self.unfinished)
    }

    /// What is written down about a snapshot, if it is here, deleted or not.
    pub(crate) fn label(&self, id: SnapshotId) -> Result<Option<Label>, PathError> {
        let path = self.at(id).join("state.json");
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| PathError::new("understand", path, error.into()))
    }

    /// The same, if it is not deleted.
    pub(crate) fn find(&self, id: SnapshotId) -> Result<Option<Label>, PathError> {
        Ok(self.label(id)?.filter(|_| !self.is_deleted(id)))
    }

    pub(crate) fn layer(&self, id: SnapshotId) -> PathBuf {
        self.at(id).join("layer")
    }

    /// Everything that is not deleted.
    pub(crate) fn kept(&self) -> Result<Vec<Kept>, PathError> {
        let mut kept = Vec::new();
        for id in ids(&self.snapshots)? {
            if let Some(label) = self.find(id)? {
                kept.push(Kept { id, bytes: label.bytes });
            }
        }
        Ok(kept)
    }

    /// Lets nobody start from the snapshot any more. Absence is success.
    pub(crate) fn delete(&self, id: SnapshotId) -> Result<(), PathError> {
        match fs::write(self.at(id).join("deleted"), "") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Moves what is deleted, and what neither these nor any snapshot stand on, to `removed`.
    pub(crate) fn clear(
        &self,
        used: &BTreeSet<SnapshotId>,
        removed: &Path,
    ) -> Result<Vec<PathBuf>, PathError> {
        let ids = ids(&self.snapshots)?;
        let (deleted, kept): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|id| self.is_deleted(*id));
        if deleted.is_empty() {
            return Ok(Vec::new());
        }
        let mut labels = BTreeMap::new();
        for id in kept.iter().chain(used) {
            // What cannot be read may stand on anything.
            if let Some(label) = self.label(*id)? {
                labels.insert(*id, label);
            }
        }
        let below = labels.values().flat_map(|label| label.below.iter().copied());
        let used: BTreeSet<_> = used.iter().copied().chain(below).collect();
        let mut cleared = Vec::new();
        for id in deleted.into_iter().filter(|id| !used.contains(id)) {
            cleared.extend(fs::put_aside(self.at(id), removed.join(id.to_string()))?);
        }
        Ok(cleared)
    }

    fn at(&self, id: SnapshotId) -> PathBuf {
        self.snapshots.join(id.to_string())
    }

    fn is_deleted(&self, id: SnapshotId) -> bool {
        self.at(id).join("deleted").exists()
    }
}

fn ids(directory: &Path) -> Result<Vec<SnapshotId>, PathError> {
    Ok(fs::names(directory)?.iter().filter_map(|name| name.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Trial {
        directory: tempfile::TempDir,
        shelf: Shelf,
    }

    impl Trial {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            for name in DIRECTORIES.iter().chain(&["removed"]) {
                fs::create_dir(directory.path().join(name), 0o700).unwrap();
            }
            let shelf = Shelf::new(directory.path());
            Self { directory, shelf }
        }

        fn keep(&self, below: &[SnapshotId]) -> SnapshotId {
            let id = SnapshotId::random();
            self.shelf.begin(id).unwrap();
            let (image, below) = (ImageName::new("host"), below.to_vec());
            self.shelf.finish(id, &Label { image, digest: None, below, bytes: 1 }).unwrap();
            id
        }

        fn clear(&self, used: &[SnapshotId]) -> usize {
            let used = used.iter().copied().collect();
            self.shelf.clear(&used, &self.directory.path().join("removed")).unwrap().len()
        }
    }

    #[test]
    fn a_deleted_snapshot_stays_for_as_long_as_something_stands_on_it() {
        let trial = Trial::new();
        let bottom = trial.keep(&[]);
        let middle = trial.keep(&[bottom]);
        let top = trial.keep(&[middle, bottom]);
        assert_eq!(trial.clear(&[]), 0);
        trial.shelf.delete(bottom).unwrap();
        trial.shelf.delete(middle).unwrap();
        assert_eq!(trial.shelf.kept().unwrap(), [Kept { id: top, bytes: 1 }]);
        assert_eq!(trial.clear(&[]), 0);
        trial.shelf.delete(top).unwrap();
        // A sandbox stands on the middle one.
        assert_eq!(trial.clear(&[middle]), 1);
        assert!(trial.shelf.label(bottom).unwrap().is_some());
        assert_eq!(trial.shelf.find(middle).unwrap(), None);
        assert_eq!(trial.clear(&[]), 2);
        assert_eq!(trial.shelf.label(bottom).unwrap(), None);
    }

    #[test]
    fn nothing_goes_while_a_label_cannot_be_read() {
        let trial = Trial::new();
        let bottom = trial.keep(&[]);
        let top = trial.keep(&[bottom]);
        trial.shelf.delete(bottom).unwrap();
        fs::write(trial.shelf.at(top).join("state.json"), "{").unwrap();
        assert!(trial.shelf.clear(&BTreeSet::new(), trial.directory.path()).is_err());
        assert!(trial.shelf.label(bottom).unwrap().is_some());
    }
}
