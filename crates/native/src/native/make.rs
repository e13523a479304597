//! Making a sandbox, and following it to its end.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Weak},
};

use osb_core::{Exit, Observed, ObservedState, RuntimeError};
use osb_image::Rootfs;
use osb_sys::ready;

use super::{Inner, Life, Native, memory};
use crate::{
    sandbox::{Place, State},
    spawner::{Ended, outcome},
};

/// The exit code that stands for `SIGKILL`.
const KILLED: i32 = 128 + 9;

impl Native {
    /// Makes the sandbox. On failure everything made so far is taken back.
    pub(super) async fn make(self, state: State, rootfs: Rootfs) -> Result<Observed, RuntimeError> {
        let id = state.spec.id;
        match self.try_make(&state, rootfs).await {
            Ok(()) => {
                self.tell(id, ObservedState::Running);
                Ok(Observed::new(id, ObservedState::Running))
            }
            Err(error) => {
                if let Err(left) = self.clear(&self.place(id)).await {
                    tracing::error!(sandbox_id = %id, error = %left, "cannot take back a sandbox that failed to start");
                }
                self.forget(id);
                Err(RuntimeError::failed("cannot start the sandbox", error))
            }
        }
    }

    async fn try_make(&self, state: &State, rootfs: Rootfs) -> io::Result<()> {
        let place = self.place(state.spec.id);
        let (theirs, ours) = (state.clone(), place.clone());
        let cover = self.inner.config.data_dir.join("stage");
        let disks = self.inner.disks.clone();
        let prepare = move || ours.prepare(&theirs, &rootfs, &cover, &disks);
        let prepared = self.inner.tasks.spawn_blocking(prepare).await?;
        let (spawn, handed) = prepared.map_err(io::Error::other)?;
        let (said, status) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let program = self.inner.execd.as_fd().try_clone_to_owned()?;
        let fds = [program, status].into_iter().chain(handed).collect();
        let spawned = self.inner.spawner.spawn(spawn, fds).await?;
        let pidfd = Arc::new(spawned.pidfd);
        self.set_life(state.spec.id, Life::Up(pidfd.clone()));
        if let Err(failure) = outcome(said).await? {
            ended(&pidfd).await?;
            self.inner.spawner.reap(spawned.pid).await?;
            return Err(io::Error::other(failure));
        }
        let weak = Arc::downgrade(&self.inner);
        self.inner.tasks.spawn(follow(weak, place, pidfd, Some(spawned.pid)));
        Ok(())
    }

    /// Writes down and tells how a sandbox ended. `child` is the number of its first process if
    /// our spawner made it and can say more.
    async fn conclude(&self, place: &Place, child: Option<i32>) {
        let status = match child {
            Some(pid) => self.inner.spawner.reap(pid).await.ok().flatten(),
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
        if let Err(error) = place.record(exit)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(sandbox_id = %place.id, %error, "cannot write down how the sandbox ended");
        }
        let mut known = self.known();
        if let Some(entry) = known.sandboxes.get_mut(&place.id) {
            entry.life = Life::Over(exit);
            // Under the lock: a removal forgets the sandbox before it tells that it is gone, so
            // nobody hears of this end after that one.
            self.tell(place.id, ObservedState::Exited(exit));
        }
    }
}

/// Waits for the first process of a sandbox to end. Keeps nothing of the runtime alive meanwhile.
pub(super) async fn follow(
    inner: Weak<Inner>,
    place: Place,
    pidfd: Arc<OwnedFd>,
    child: Option<i32>,
) {
    let end = tokio::select! {
        end = ended(&pidfd) => end,
        never = memory::watch(&inner, &place) => match never {},
    };
    match end {
        Ok(()) => {
            if let Some(inner) = inner.upgrade() {
                Native { inner }.conclude(&place, child).await;
            }
        }
        Err(error) => {
            tracing::error!(sandbox_id = %place.id, %error, "cannot watch the sandbox");
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
