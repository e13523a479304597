//! Which images are in use, and removing the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use osb_core::{Chain, ImageDigest, ImageName};
use osb_image::{Collected, ImageError};
use osb_registry::Digest;
use tokio::{
    sync::oneshot,
    time::{Instant, MissedTickBehavior},
};

use super::{Reconciler, Shared};
use crate::library::Library;

/// How often it is looked for images that nobody needs any more.
const COLLECT_EVERY: Duration = Duration::from_hours(1);

impl Reconciler {
    /// The images, if the runtime leaves them to the server.
    pub(crate) fn library(&self) -> Option<&Arc<Library>> {
        self.0.library.as_ref()
    }

    /// How many sandboxes and snapshots stand on each image.
    pub(crate) fn image_users(&self) -> BTreeMap<Digest, u64> {
        self.0.library.as_ref().map(|library| self.0.users(library)).unwrap_or_default()
    }

    /// Removes what nobody needs, to its end even if nobody waits for it.
    pub(crate) fn collect(&self) -> oneshot::Receiver<Result<Collected, ImageError>> {
        let (reply, answer) = oneshot::channel();
        let shared = Arc::clone(&self.0);
        self.0.tasks.spawn(async move {
            let Some(collected) = collect(&shared).await else { return };
            if let Err(unheard) = reply.send(collected) {
                say(unheard);
            }
        });
        answer
    }
}

/// Removes what nobody needs now and then, until the server ends.
pub(super) async fn tidy(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval_at(Instant::now() + COLLECT_EVERY, COLLECT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => match collect(&shared).await {
                Some(collected) => say(collected),
                None => return,
            },
            () = shared.stop.cancelled() => return,
        }
    }
}

/// `None` if there is nothing to be in charge of, or the server is ending.
async fn collect(shared: &Arc<Shared>) -> Option<Result<Collected, ImageError>> {
    let library = Arc::clone(shared.library.as_ref()?);
    let theirs = Arc::clone(shared);
    let _mine = library.collecting.lock().await;
    let collect = {
        let library = Arc::clone(&library);
        move || {
            // Before those of sandboxes: a build makes some of what it keeps.
            let mut used = library.kept_by_builds()?;
            used.extend(theirs.used(&library));
            library.images().collect(&used)
        }
    };
    tokio::task::spawn_blocking(collect).await.ok()
}

fn say(collected: Result<Collected, ImageError>) {
    match collected {
        Ok(Collected { images: 0, layers: 0, blobs: 0, .. }) => {}
        Ok(Collected { images, layers, blobs, bytes }) => {
            tracing::info!(images, layers, blobs, bytes, "removed images that nobody needs");
        }
        Err(error) => tracing::error!(
            error = %Chain(&error),
            "images that nobody needs could not be removed; it is tried again"
        ),
    }
}

impl Shared {
    /// The images on which sandboxes and snapshots stand, and those of pools.
    fn used(&self, library: &Library) -> BTreeSet<Digest> {
        let pools: Vec<ImageName> = self.runtime.pools().into_iter().map(|it| it.image).collect();
        let pools = library.digests(pools.iter());
        self.users(library).into_keys().chain(pools).collect()
    }

    fn users(&self, library: &Library) -> BTreeMap<Digest, u64> {
        let mut users = BTreeMap::new();
        let mut count = |image: &ImageName, digest: Option<&ImageDigest>| {
            let digest = match digest {
                Some(digest) => Digest::parse(digest.as_str()).ok(),
                // It may become the one that the name stands for.
                None => library.images().find(image).ok().and_then(|image| image.digest),
            };
            if let Some(digest) = digest {
                *users.entry(digest).or_default() += 1;
            }
        };
        for record in self.store.index().newest_first(|_| true) {
            let spec = &record.desired.spec;
            count(&spec.image, spec.image_digest.as_ref());
        }
        for record in self.store.snapshots().newest_first(|_| true) {
            count(&record.image, record.image_digest.as_ref());
        }
        users
    }
}
