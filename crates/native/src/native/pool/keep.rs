//! Keeping the pools full, one sandbox at a time.

use std::{
    io,
    os::fd::OwnedFd,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use osb_api::SandboxId;
use osb_core::{
    ImageName, SandboxSpec, Token,
    agent::{Ahead, Readied, Sent},
};
use osb_sys::{line::Line, message};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout},
};

use super::{Claimed, PoolConfig, Warm, stock::Next};
use crate::{
    beginning::Beginning,
    native::{
        Inner, Native, images,
        make::{attend, ended},
        memory::Ear,
    },
    sandbox::{self, Purpose, State},
};

/// The longest rest after a sandbox was started.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// How long the interpreters of a warm sandbox may take to start, and to import what they should have.
const READYING: Duration = Duration::from_secs(100);

/// How long clearing the pools may take when the server ends.
const LAST_MOMENT: Duration = Duration::from_secs(5);

impl Native {
    /// Begins to keep the pools full, if there are any.
    pub(in super::super) fn keep_pools(&self) {
        if !self.inner.pools.is_empty() {
            let (images, renamed) = (&self.inner.images, self.inner.images.renamed());
            for PoolConfig { image, .. } in &self.inner.config.pools {
                if images.find(image).is_err() {
                    tracing::warn!(%image, "a pool waits until its image is here: pull it");
                }
            }
            self.inner.pools.keeping.spawn(keep(Arc::downgrade(&self.inner), renamed));
        }
    }

    /// Starts a sandbox that waits for its purpose.
    async fn warm_up(&self, image: &ImageName) -> io::Result<()> {
        let found = self.inner.images.find(image).map_err(io::Error::other)?;
        let rootfs = self.ground(&found);
        let (channel, theirs) = message::channel()?;
        // Last, for nobody gives them back if anything before the start fails.
        let base = self.known().take_ids().map_err(io::Error::other)?;
        let id = SandboxId::random();
        let place = self.place_in(&self.pool_directory(), id);
        let spec = SandboxSpec::new(id, image.clone(), Vec::new(), Token::new(""));
        let disk = self.inner.config.default_disk;
        let group = Some(self.group_name(id));
        let state = State { spec, base, disk, group, image: images::digest(&found) };
        let launching = self.launch(&place, &state, rootfs, Purpose::Later(theirs));
        let launched = launching.await.and_then(|spawned| {
            let limits = place.group.open_limits().map_err(io::Error::other)?;
            let blank = place.blank().map_err(io::Error::other)?;
            Ok((spawned.pidfd.try_clone()?, limits, blank, spawned))
        });
        let (process, limits, blank, spawned) = match launched {
            Ok(launched) => launched,
            Err(error) => {
                self.clear(&place).await?;
                self.known().ids.give_back(base);
                return Err(error);
            }
        };
        let weak = Arc::downgrade(&self.inner);
        let (follower, claimed) = oneshot::channel();
        let watching = stay(weak, id, process, Ear::new(&place.group), claimed);
        let watcher = self.inner.tasks.spawn(watching).abort_handle();
        let mut warm = Warm {
            place,
            base,
            image: found,
            spawned,
            limits,
            blank,
            channel,
            is_busy: false,
            watcher,
            follower,
        };
        let closed = self.inner.pools.closed();
        let readied = tokio::select! {
            readied = self.make_ready(&warm, &state.spec) => readied,
            // It is not wanted any more.
            () = closed.cancelled() => Ok(false),
        };
        match readied {
            Ok(is_busy) => warm.is_busy = is_busy,
            Err(error) => {
                self.discard(warm).await?;
                return Err(error);
            }
        }
        match self.inner.pools.add(image, warm) {
            Ok(()) => Ok(()),
            Err(warm) => self.discard(*warm).await,
        }
    }

    /// Has execd start what is to run in a warm sandbox, and waits until that runs. False says that
    /// nothing is.
    async fn make_ready(&self, warm: &Warm, spec: &SandboxSpec) -> io::Result<bool> {
        let mut pools = self.inner.config.pools.iter();
        let is_its =
            |pool: &&PoolConfig| pool.image == spec.image && !pool.code.languages.is_empty();
        let Some(pool) = pools.find(is_its) else { return Ok(false) };
        // From here on programs of the image run in it.
        warm.limits.limit(&sandbox::limits(spec)).map_err(io::Error::other)?;
        let rootfs = self.ground(&warm.image);
        let begins = self.beginning(&warm.image, &rootfs).map_err(io::Error::other)?;
        let Beginning { mut env, workdir, user, .. } = (*begins).clone();
        env.extend(pool.env.clone());
        let ahead = Ahead { code: pool.code.clone(), env, workdir, user };
        if let Err(error) = message::send(&warm.channel, &Sent::Ahead(Box::new(ahead)), &[]) {
            if error.kind() != io::ErrorKind::InvalidInput {
                return Err(error);
            }
            let image = &spec.image;
            tracing::warn!(%image, "the variables of the image are too long to start interpreters with");
            return Ok(false);
        }
        let line = Line::new(warm.channel.try_clone()?)?;
        let readied = timeout(READYING, line.receive::<Readied>()).await;
        let readied = readied.map_err(|_| io::Error::other("its interpreters take too long"))??;
        readied.map(|_| true).ok_or_else(|| io::Error::other("it has ended"))
    }

    /// Clears away all that wait, as far as it can be done in a moment.
    pub(in super::super) async fn empty_pools(&self) {
        let pools = &self.inner.pools;
        if pools.is_empty() {
            return;
        }
        let all = pools.close();
        pools.keeping.close();
        let clearing = async {
            for warm in all {
                if let Err(error) = self.discard(warm).await {
                    tracing::warn!(%error, "cannot clear a warm sandbox");
                }
            }
            // The one that is being started is cleared by whoever starts it.
            pools.keeping.wait().await;
            self.deleted().await;
        };
        // What is left ends by itself, and the next server clears it away.
        tokio::time::timeout(LAST_MOMENT, clearing).await.ok();
    }

    /// Clears away a warm sandbox that ended before anybody claimed it.
    async fn lost(&self, id: SandboxId, end: io::Result<()>) {
        let Some(warm) = self.inner.pools.withdraw(id) else { return };
        tracing::warn!(?end, "a warm sandbox has ended before anybody asked for it");
        if let Err(error) = self.discard(warm).await {
            tracing::warn!(%error, "cannot clear a warm sandbox that has ended");
        }
    }

    async fn discard(&self, warm: Warm) -> io::Result<()> {
        self.end(&warm.spawned).await?;
        self.clear(&warm.place).await?;
        self.known().ids.give_back(warm.base);
        // Last, for this may be the watcher itself.
        warm.watcher.abort();
        Ok(())
    }
}

/// Waits for a warm sandbox to end, and from its claim on for the one that it has become.
async fn stay(
    runtime: Weak<Inner>,
    id: SandboxId,
    process: OwnedFd,
    ear: Ear,
    mut claimed: oneshot::Receiver<Claimed>,
) {
    let mut end = pin!(ended(&process));
    let ended = tokio::select! {
        Ok((up, gift)) = &mut claimed => {
            drop(gift);
            return attend(runtime, up, end, ear).await;
        }
        ended = &mut end => ended,
    };
    claimed.close();
    if let Ok((up, _)) = claimed.try_recv() {
        // In the same moment.
        return attend(runtime, up, std::future::ready(ended), ear).await;
    }
    if let Some(inner) = runtime.upgrade() {
        Native { inner }.lost(id, ended).await;
    }
}

/// Keeps the pools full until the runtime is gone, of which it keeps nothing alive meanwhile.
///
/// One sandbox is started after another, with a rest after each that is as long as it took: a busy
/// machine is left in peace for longer.
async fn keep(runtime: Weak<Inner>, mut renamed: watch::Receiver<()>) {
    loop {
        let Some(inner) = runtime.upgrade() else { return };
        let native = Native { inner };
        let pools = &native.inner.pools;
        let (changed, closed) = (pools.changed(), pools.closed());
        renamed.mark_unchanged();
        pools.compare(|image| native.inner.images.find(image).ok());
        for warm in pools.stale() {
            if let Err(error) = native.discard(warm).await {
                tracing::warn!(%error, "cannot clear a warm sandbox of an older image");
            }
        }
        let now = Instant::now();
        let until = match pools.next(now) {
            Next::Rest => None,
            Next::At(moment) => Some(moment),
            Next::Start(image) => {
                let started = native.warm_up(&image).await;
                if let Err(error) = started {
                    pools.count_failure(&image);
                    tracing::warn!(%image, %error, "cannot start a warm sandbox; it is tried again");
                }
                let rest = now.elapsed().min(LONGEST_REST);
                drop(native);
                tokio::select! {
                    () = tokio::time::sleep(rest) => continue,
                    () = closed.cancelled() => return,
                }
            }
        };
        drop(native);
        let moment = async {
            match until {
                Some(moment) => tokio::time::sleep_until(moment).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = moment => {}
            () = changed.notified() => {}
            () = another(&mut renamed) => {}
            () = closed.cancelled() => return,
        }
    }
}

/// Waits until a name stands for another image than before.
async fn another(renamed: &mut watch::Receiver<()>) {
    if renamed.changed().await.is_err() {
        // There are no images any more, nor anybody who waits.
        std::future::pending::<()>().await;
    }
}
