//! Warm pools: sandboxes that are started before anybody asks for them.
//!
//! A warm sandbox is like any other up to the moment in which execd reads its instructions: it has
//! its namespaces, its mounts, its filters, a range of ids of its own, and an execd that waits on a
//! channel whose other end is here alone. A claim sets the limits, writes down whose it is, moves its
//! directory to its new name and sends the instructions. Each is claimed once, so nothing of one
//! claim can reach another.
//!
//! If the server dies, the channels close and all that wait end by themselves; what is left of them
//! in `pool/` is cleared by the next server.

mod keep;
mod stock;

use std::{collections::BTreeMap, fs::File, io, os::fd::OwnedFd, sync::Arc};

use osb_api::SandboxId;
use osb_core::{ImageName, Observed, ObservedState, agent::CodeAhead};
use osb_image::{Image, ImageError, Images};
use osb_registry::Reference;
use osb_sys::{
    cgroup::OpenLimits,
    fs::{self, PathError},
    in_place::in_place,
    process,
    userns::IdBase,
};
use tokio::{sync::oneshot, task::AbortHandle};

pub(super) use self::stock::Pools;
use super::{
    Native,
    make::{Up, ended, follow},
};
use crate::{
    beginning::Beginning,
    sandbox::{Gift, Place, State},
    spawner::Spawned,
};

/// How many sandboxes of an image are kept started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    pub image: ImageName,
    pub size: usize,
    /// The interpreters that run in each.
    pub code: CodeAhead,
    /// Variables that those who claim them are expected to bring, so that interpreters have them from
    /// their start.
    pub env: BTreeMap<String, String>,
}

/// Whether there can ever be an image of this name. There need not be one yet.
pub(super) fn check(images: &Images, name: &ImageName) -> Result<(), ImageError> {
    if Reference::parse(name.as_str()).is_ok() {
        return Ok(());
    }
    images.find(name).map(drop)
}

/// Whether a sandbox on one of these is the same as one on the other.
fn are_same(one: &Image, other: &Image) -> bool {
    one.digest == other.digest && one.rootfs == other.rootfs
}

/// A sandbox that waits for somebody to ask for it.
#[derive(Debug)]
pub(super) struct Warm {
    place: Place,
    pub(super) base: IdBase,
    /// What it stands on: another image may have the name by now.
    image: Image,
    spawned: Spawned,
    /// What it is limited with when it is claimed.
    limits: OpenLimits,
    /// Where its state is written when it is claimed.
    blank: File,
    /// Where execd waits for its instructions.
    channel: OwnedFd,
    /// Programs of the image run in it.
    is_busy: bool,
    /// Clears it away if it ends before it is claimed.
    watcher: AbortHandle,
    /// Who follows it from its claim on.
    follower: oneshot::Sender<Claimed>,
}

/// A warm sandbox that somebody has claimed, and what it was given its purpose with: to close that takes
/// longer than whoever claimed it should wait.
pub(super) type Claimed = (Up, Gift);

/// What is left of a warm sandbox that could not be claimed.
#[derive(Debug)]
pub(super) struct Spoilt {
    place: Place,
    spawned: Spawned,
}

impl Warm {
    /// What it was started with.
    pub(super) fn id(&self) -> SandboxId {
        self.place.id
    }
}

impl Native {
    /// Makes a warm sandbox the one that `state` describes.
    ///
    /// It does not wait for anybody, so whoever asks for it cannot leave it half done; and it is done
    /// by this thread, for to have another one do it takes as long again.
    pub(super) fn claim(
        &self,
        warm: Warm,
        state: &State,
        begins: &Beginning,
    ) -> Result<Observed, Box<Spoilt>> {
        let Warm {
            place: from, spawned, limits, blank, channel, is_busy, watcher, follower, ..
        } = warm;
        let began = tokio::time::Instant::now();
        let place = self.place_of(state);
        let gift = Gift { limits, blank, channel };
        let given = in_place(|| {
            if is_busy {
                from.check_room(state)?;
            }
            from.give(state, begins, &place, &gift)
        });
        if let Err(error) = given {
            let id = state.spec.id;
            tracing::warn!(sandbox_id = %id, %error, "a warm sandbox could not be used; another is made");
            watcher.abort();
            return Err(Box::new(Spoilt { place: from, spawned }));
        }
        let id = place.id;
        if let Err((up, _)) = follower.send((self.stand(place, spawned), gift)) {
            // It has just ended, and nobody follows it any more.
            self.inner.tasks.spawn(follow(Arc::downgrade(&self.inner), up));
        }
        self.inner.stages.claim.count(began);
        self.tell(id, ObservedState::Running);
        Ok(Observed::new(id, ObservedState::Running))
    }

    /// Clears away a warm sandbox that could not become the one that `state` describes.
    pub(super) async fn clear_spoilt(&self, spoilt: Box<Spoilt>, state: &State) -> io::Result<()> {
        self.end(&spoilt.spawned).await?;
        self.clear(&spoilt.place).await?;
        self.clear(&self.place_of(state)).await
    }

    /// Ends the first process of a sandbox that nobody was told of.
    async fn end(&self, spawned: &Spawned) -> io::Result<()> {
        process::kill(&spawned.pidfd)?;
        ended(&spawned.pidfd).await?;
        self.inner.spawner.reap(spawned.pid).await?;
        Ok(())
    }

    /// Clears away what waited for a claim when the server before this one ended.
    pub(super) async fn drain(&self) -> Result<(), PathError> {
        let pool = self.pool_directory();
        for name in fs::names(&pool)? {
            let Ok(id) = name.parse::<SandboxId>() else { continue };
            if let Err(error) = self.clear(&self.left_in(&pool, id)).await {
                tracing::warn!(%error, "cannot clear a warm sandbox that another server left");
            }
        }
        Ok(())
    }

    fn pool_directory(&self) -> std::path::PathBuf {
        self.inner.config.data_dir.join("pool")
    }
}
