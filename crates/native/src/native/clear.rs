//! Taking a sandbox apart.

use std::{io, path::Path, sync::Arc, time::Duration};

use osb_api::SandboxId;
use osb_core::Chain;
use osb_sys::{cgroup::Group, confined, process, tree};

use super::{Entry, Life, Native, make::ended};
use crate::sandbox::Place;

/// How long a killed sandbox may take to end: a process that waits for a disk or a network file
/// system hears nothing before that answers. Whoever asked learns of it and may ask again.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(20);
/// How long an ended sandbox's control group may stay busy.
const GROUP_PATIENCE: Duration = Duration::from_secs(10);

/// How long an entrypoint may take to end that was asked to, before everything is ended.
const GRACE: Duration = Duration::from_secs(2);

impl Native {
    /// Lets the entrypoint of a sandbox that is to go end by itself, as far as it wants to.
    pub(super) async fn wind_down(&self, id: SandboxId) {
        let Some(Entry { state, life: Life::Up(pidfd), .. }) = self.entry(id) else { return };
        // Whoever is stopped hears nothing; and whoever does not listen yet has started nothing.
        if self.place_of(&state).is_paused() || !process::listens(&pidfd) {
            return;
        }
        if process::ask_to_end(&*pidfd).is_ok() {
            // Whatever comes of it, everything ends now.
            tokio::time::timeout(GRACE, ended(&pidfd)).await.ok();
        }
    }

    /// Ends whatever runs in the sandbox, and removes its group and directory.
    pub(super) async fn clear(&self, place: &Place) -> io::Result<()> {
        let running = match self.entry(place.id).map(|entry| entry.life) {
            Some(Life::Up(pidfd)) => Some(pidfd),
            Some(Life::Starting | Life::Over(_)) | None => {
                place.disown().map_err(io::Error::other)?.map(Arc::new)
            }
        };
        if let Some(pidfd) = running {
            process::kill(&pidfd)?;
            // A stopped process hears no signal before it goes on (cgroup v1).
            place.group.thaw().ok();
            tokio::time::timeout(END_PATIENCE, ended(&pidfd)).await??;
        }
        empty(&place.group).await?;
        let (place, removed) = (place.clone(), self.removed());
        let to = removed.clone();
        let aside = self.inner.tasks.spawn_blocking(move || place.discard(&to)).await?;
        if let Some(aside) = aside.map_err(io::Error::other)? {
            // Deleting may take long; the sandbox is gone as soon as it has lost its name.
            self.inner.deletions.spawn_blocking(move || delete(&removed, &aside));
        }
        Ok(())
    }
}

/// Removes a control group, ending what is still in it: after a crash that may be a process that had
/// not yet become execd.
pub(crate) async fn empty(group: &Group) -> io::Result<()> {
    let deadline = tokio::time::Instant::now() + GROUP_PATIENCE;
    loop {
        // A stopped process hears no signal before it goes on (cgroup v1).
        group.thaw().ok();
        for pid in group.processes() {
            if let Ok(pidfd) = process::open(pid)
                && group.processes().contains(&pid)
            {
                process::kill(&pidfd)?;
            }
        }
        match group.remove() {
            Ok(()) => return Ok(()),
            Err(error) if tokio::time::Instant::now() > deadline => return Err(error),
            // The kernel takes ended processes out of their group a moment later, and tells
            // nobody when.
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Deletes what a sandbox left in `removed`. Whatever it has built there, no other file is reached.
pub(super) fn delete(removed: &Path, path: &Path) {
    let deleted = confined::run(removed, || tree::remove(path));
    if let Err(error) = deleted.and_then(|result| result.map_err(io::Error::other)) {
        tracing::warn!(error = %Chain(&error), "cannot delete what a removed sandbox left");
    }
}
