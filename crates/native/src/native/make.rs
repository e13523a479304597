//! Making a sandbox, and following it to its end.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Weak},
};

use osb_core::{Exit, Observed, ObservedState, RuntimeError};
use osb_image::{Image, Rootfs};
use osb_sys::ready;

use super::{
    Inner, Life, Native,
    memory::{self, Ear},
    pool::Spoilt,
};
use crate::{
    beginning::Beginning,
    sandbox::{Place, Purpose, State},
    spawner::{Ended, Spawned, outcome},
    volumes,
};

/// The exit code that stands for `SIGKILL`.
const KILLED: i32 = 128 + 9;

impl Native {
    /// Makes the sandbox, after a warm one that it was to be could not be claimed. On failure
    /// everything made so far is taken back.
    pub(super) async fn make(
        self,
        mut state: State,
        image: Image,
        begins: Option<Arc<Beginning>>,
        spoilt: Option<Box<Spoilt>>,
    ) -> Result<Observed, RuntimeError> {
        let id = state.spec.id;
        let ground = self.stack(&state.spec, &image).and_then(|rootfs| {
            let begins = begins.map_or_else(|| self.beginning(&image, &rootfs), Ok)?;
            Ok((rootfs, begins))
        });
        let (rootfs, begins) = match ground {
            Ok(ground) => ground,
            Err(error) => {
                self.forget(id);
                // It may have been the last to stand on a deleted one, for a moment.
                self.clear_shelf();
                return Err(error);
            }
        };
        if let Some(spoilt) = spoilt {
            if let Err(error) = self.clear_spoilt(spoilt, &state).await {
                tracing::warn!(sandbox_id = %id, %error, "cannot clear a warm sandbox that could not be used");
            }
            state.group = Some(self.group_name(id));
            self.restate(&state);
        }
        match self.try_make(&state, rootfs, begins).await {
            Ok(()) => {
                self.tell(id, ObservedState::Running);
                Ok(Observed::new(id, ObservedState::Running))
            }
            Err(error) => {
                if let Err(left) = self.clear(&self.place_of(&state)).await {
                    tracing::error!(sandbox_id = %id, error = %left, "cannot take back a sandbox that failed to start");
                }
                self.forget(id);
                Err(volumes::explain(error))
            }
        }
    }

    async fn try_make(
        &self,
        state: &State,
        rootfs: Rootfs,
        begins: Arc<Beginning>,
    ) -> io::Result<()> {
        let _creating = self.inner.pools.creating();
        let place = self.place_of(state);
        let spawned = self.launch(&place, state, rootfs, Purpose::Known(begins)).await?;
        self.begin(place, spawned);
        Ok(())
    }

    /// Has execd started in a sandbox at `place`, of which nothing is there yet.
    pub(super) async fn launch(
        &self,
        place: &Place,
        state: &State,
        rootfs: Rootfs,
        purpose: Purpose,
    ) -> io::Result<Spawned> {
        let (stages, began) = (&self.inner.stages, tokio::time::Instant::now());
        let (when, disks) = (purpose.when(), self.inner.disks.clone());
        // Side by side: each takes as long as the other.
        let (ours, theirs) = (place.clone(), state.clone());
        let settling = self.inner.tasks.spawn_blocking(move || ours.settle(&theirs, &disks, when));
        let (ours, theirs) = (place.clone(), state.clone());
        let enclosing = self.inner.tasks.spawn_blocking(move || ours.enclose(&theirs, when));
        // Neither is left alone: what they made may have to be cleared away.
        let (settled, enclosed) = (settling.await?, enclosing.await?);
        let settled = settled.map_err(io::Error::other)?;
        let counters = enclosed.map_err(io::Error::other)?;
        let order = place.order(state, &rootfs, settled, counters, purpose);
        let (mut spawn, mut handed) = order.map_err(io::Error::other)?;
        let (plans, volumes) = self.find_volumes(&state.spec).await?;
        let (lent, contents) = self.lent(place.id)?;
        spawn.root.volumes = plans.into_iter().chain(lent).collect();
        handed.extend(volumes.into_iter().chain(contents));
        let (said, status) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let program = self.inner.execd.as_fd().try_clone_to_owned()?;
        let fds = [program, status].into_iter().chain(handed).collect();
        let next = self.known().ids.next();
        let began = stages.prepare.count(began);
        let spawned = self.inner.spawner.spawn(spawn, next, fds).await?;
        let began = stages.spawn.count(began);
        if let Err(failure) = outcome(said).await? {
            ended(&spawned.pidfd).await?;
            self.inner.spawner.reap(spawned.pid).await?;
            return Err(io::Error::other(failure));
        }
        stages.start.count(began);
        Ok(spawned)
    }

    /// From here on the sandbox at `place` is up.
    pub(super) fn begin(&self, place: Place, spawned: Spawned) {
        let up = self.stand(place, spawned);
        self.inner.tasks.spawn(follow(Arc::downgrade(&self.inner), up));
    }

    /// The same, but for somebody else to follow it.
    pub(super) fn stand(&self, place: Place, Spawned { pid, pidfd, outlets }: Spawned) -> Up {
        let pidfd = Arc::new(pidfd);
        self.keep_outlets(place.id, outlets);
        self.set_life(place.id, Life::Up(pidfd.clone()));
        Up { place, pidfd, child: Some(pid) }
    }

    /// Writes down and tells how a sandbox ended.
    async fn conclude(&self, Up { place, pidfd, child }: &Up) {
        let status = match child {
            Some(pid) => self.inner.spawner.reap(*pid).await.ok().flatten(),
            None => None,
        };
        let exit = match status {
            // execd passes on how its entrypoint was killed.
            Some(Ended::Signal(_) | Ended::Code(KILLED)) if place.group.oom_kills() > 0 => {
                Exit::OutOfMemory
            }
            Some(Ended::Code(code)) => Exit::Code(code),
            Some(Ended::Signal(signal)) => Exit::Signal(signal),
            None => Exit::Unknown,
        };
        // Under the lock: a removal forgets the sandbox before it tells that it is gone, so nobody
        // hears of this end after that one, and no other sandbox has the id meanwhile.
        let mut known = self.known();
        let entry = known.sandboxes.get_mut(&place.id);
        let is_it = |life: &Life| matches!(life, Life::Up(first) if Arc::ptr_eq(first, pidfd));
        let Some(entry) = entry.filter(|entry| is_it(&entry.life)) else { return };
        if let Err(error) = place.record(exit)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(sandbox_id = %place.id, %error, "cannot write down how the sandbox ended");
        }
        entry.life = Life::Over(exit);
        known.outlets.remove(&place.id);
        self.tell(place.id, ObservedState::Exited(exit));
    }
}

/// A sandbox that is up.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) place: Place,
    /// Its first process.
    pub(super) pidfd: Arc<OwnedFd>,
    /// The number of that if our spawner made it and can say more.
    pub(super) child: Option<i32>,
}

/// Waits for the first process of a sandbox to end. Keeps nothing of the runtime alive meanwhile.
pub(super) async fn follow(inner: Weak<Inner>, up: Up) {
    let ear = Ear::late(&inner, &up.place);
    let pidfd = Arc::clone(&up.pidfd);
    attend(inner, up, ended(&pidfd), ear).await;
}

/// The same, with what was made ready before.
pub(super) async fn attend(
    inner: Weak<Inner>,
    up: Up,
    end: impl Future<Output = io::Result<()>>,
    ear: Ear,
) {
    let end = tokio::select! {
        end = end => end,
        never = memory::watch(&inner, &up.place, &ear) => match never {},
    };
    match end {
        Ok(()) => {
            if let Some(inner) = inner.upgrade() {
                Native { inner }.conclude(&up).await;
            }
        }
        Err(error) => {
            tracing::error!(sandbox_id = %up.place.id, %error, "cannot watch the sandbox");
        }
    }
}

pub(super) async fn ended(pidfd: &OwnedFd) -> io::Result<()> {
    // A descriptor of its own: one descriptor has one place in the event loop, and the follower
    // and a removal may both wait.
    let handle = ready::register(pidfd.try_clone()?, tokio::io::Interest::READABLE)?;
    drop(handle.readable().await?);
    Ok(())
}
