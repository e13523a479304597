//! Finding the sandboxes that an earlier server left.

use std::{os::fd::OwnedFd, sync::Arc};

use osb_api::SandboxId;
use osb_core::Exit;
use osb_sys::{fs, process};

use super::{
    Entry, Life, Native,
    clear::delete,
    make::{Up, follow},
};
use crate::sandbox::Place;

impl Native {
    /// Finds what an earlier server left.
    pub(super) async fn adopt(&self) -> Result<(), fs::PathError> {
        let removed = self.removed();
        // Before anything is added, whose deletion begins at once.
        let mut left: Vec<_> = fs::names(&removed)?.iter().map(|name| removed.join(name)).collect();
        for name in fs::names(self.sandboxes())? {
            let Ok(id) = name.parse::<SandboxId>() else { continue };
            let place = self.left_in(&self.sandboxes(), id);
            let state = place.state();
            let place = state.as_ref().map_or(place, |state| self.place_of(state));
            place.stir()?;
            let first = first_process(&place);
            let state = match state {
                Ok(state) if first.is_some() || place.has_lived(&self.inner.disks) => state,
                // It runs, and what is written down about it was whole before it did: a newer
                // version wrote it, or the disk is damaged. Nothing here says that it may end.
                Err(error) if first.is_some() => return Err(error),
                // The crash came before there was anything to lose.
                Ok(_) | Err(_) => {
                    if let Err(error) = self.clear(&place).await {
                        tracing::warn!(sandbox_id = %id, %error, "cannot clear what a crash left");
                    }
                    continue;
                }
            };
            let life = match (place.exit(), first) {
                (Some(exit), _) => Life::Over(exit),
                (None, Some(pidfd)) => Life::Up(Arc::new(pidfd)),
                (None, None) => Life::Over(Exit::Unknown),
            };
            let up = match &life {
                Life::Up(pidfd) => Some(pidfd.clone()),
                Life::Starting | Life::Over(_) => None,
            };
            {
                let image = self.recall_image(&state);
                let mut known = self.known();
                known.ids.claim(state.base);
                let (turn, leaving) = Default::default();
                let entry = Entry { state, life, _image: image, turn, leaving };
                known.sandboxes.insert(id, entry);
            }
            // Its end is told of one that is known.
            if let Some(pidfd) = up {
                let weak = Arc::downgrade(&self.inner);
                self.inner.tasks.spawn(follow(weak, Up { place, pidfd, child: None }));
            }
        }
        self.drain().await?;
        self.clear_groups().await?;
        self.clear_shelf();
        self.sweep_volumes()?;
        for id in self.inner.shelf.unfinished()? {
            left.extend(self.inner.shelf.abandon(id, &removed)?);
        }
        self.inner.deletions.spawn_blocking(move || {
            for path in left {
                delete(&removed, &path);
            }
        });
        Ok(())
    }
}

/// The first process of a sandbox, found by what it wrote down or by its control group.
fn first_process(place: &Place) -> Option<OwnedFd> {
    if let Some(pidfd) = place.noted_process() {
        return Some(pidfd);
    }
    let pid = process::init_among(&place.group.processes())?;
    let pidfd = process::open(pid).ok()?;
    // The number may have gone to another process since; then that one is not in the group.
    let still = process::init_among(&place.group.processes()) == Some(pid);
    still.then_some(pidfd)
}
