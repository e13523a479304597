//! What building images needs: files in memory for a sandbox, and what it wrote when it has ended.

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use async_trait::async_trait;
use osb_api::SandboxId;
use osb_core::{Builds, LentFile, RuntimeError, Written};
use osb_sys::{memfd, process, userns::RANGE};

use super::{Entry, Life, Native, clear::END_PATIENCE, clear::empty, make::ended};
use crate::spawner::{VolumeKind, VolumePlan};

/// Files for sandboxes that are to be made, for as long as somebody holds them.
#[derive(Debug, Default)]
pub(super) struct Lending(Mutex<HashMap<SandboxId, Weak<Vec<LentFile>>>>);

impl Lending {
    pub(super) fn of(&self, id: SandboxId) -> Option<Arc<Vec<LentFile>>> {
        self.lock().get(&id).and_then(Weak::upgrade)
    }

    fn add(&self, id: SandboxId, files: &Arc<Vec<LentFile>>) {
        let mut lent = self.lock();
        lent.retain(|_, files| files.strong_count() > 0);
        lent.insert(id, Arc::downgrade(files));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Weak<Vec<LentFile>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Builds for Native {
    fn lend(&self, id: SandboxId, files: &Arc<Vec<LentFile>>) {
        self.inner.lent.add(id, files);
    }

    async fn take(&self, id: SandboxId) -> Result<Written, RuntimeError> {
        let entry = self.entry(id).ok_or(RuntimeError::NotFound(id))?;
        // Nobody removes it as long as it is held.
        let turn = Arc::clone(&entry.turn).lock_owned().await;
        let entry = self.entry(id).ok_or(RuntimeError::NotFound(id))?;
        let native = self.clone();
        // In a task of its own: a caller that goes away must not leave half of it running.
        let taking = self.inner.tasks.spawn(async move {
            let (files, oom_kills) = native.end_and_open(&entry).await?;
            let owners = native.inner.rights.ids_of(entry.state.base).0;
            Ok(Written { files, owners, oom_kills, hold: Box::new(turn) })
        });
        let failed = |error: io::Error| RuntimeError::failed("cannot take what it wrote", error);
        taking.await.map_err(|error| failed(error.into()))?.map_err(failed)
    }
}

impl Native {
    /// The files that a sandbox is lent, as volumes with their contents.
    pub(super) fn lent(&self, id: SandboxId) -> io::Result<(Vec<VolumePlan>, Vec<OwnedFd>)> {
        let Some(files) = self.inner.lent.of(id) else { return Ok((Vec::new(), Vec::new())) };
        let (mut plans, mut contents) = (Vec::new(), Vec::new());
        for LentFile { at, content, mode, user, group } in files.iter() {
            if *user >= RANGE || *group >= RANGE {
                let message = "a file is lent to a user whom no sandbox has";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            let kind = VolumeKind::Lent { mode: *mode, user: *user, group: *group };
            plans.push(VolumePlan { at: at.clone(), read_only: true, kind });
            contents.push(memfd::with_content("lent", (**content).as_ref())?.into());
        }
        Ok((plans, contents))
    }

    /// Ends all processes of a sandbox, and opens the directory of what they wrote.
    async fn end_and_open(&self, entry: &Entry) -> io::Result<(OwnedFd, u64)> {
        let place = self.place_of(&entry.state);
        if let Life::Up(pidfd) = &entry.life {
            process::kill(pidfd)?;
            // A stopped process hears no signal before it goes on (cgroup v1).
            place.group.thaw().ok();
            tokio::time::timeout(END_PATIENCE, ended(pidfd)).await??;
        }
        let oom_kills = place.group.oom_kills();
        empty(&place.group).await?;
        let disks = self.inner.disks.clone();
        let opening = self
            .inner
            .tasks
            .spawn_blocking(move || place.files(&disks).map_err(io::Error::other)?.upper());
        Ok((opening.await??, oom_kills))
    }
}
