//! What is on its way, so that nothing is on its way twice.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use futures_util::future::{BoxFuture, Shared, WeakShared};
use osb_registry::{Digest, Login, Platform, Reference};
use secrecy::ExposeSecret as _;
use tokio::sync::{OwnedMutexGuard, watch};

use super::{PullProgress, RemoteError, pull::Pulled};

pub(super) type Flight = Shared<BoxFuture<'static, Result<Pulled, Arc<RemoteError>>>>;

/// What makes two pulls one: also who asks, since registries answer each as they see fit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    pub(super) reference: Reference,
    pub(super) platform: Platform,
    who: Option<Digest>,
}

impl Asked {
    pub(super) fn new(reference: Reference, platform: Platform, login: Option<&Login>) -> Self {
        let who = login.map(|Login { username, password }| {
            let secret = password.expose_secret();
            let length = username.len();
            let text = secrecy::zeroize::Zeroizing::new(format!("{length} {username} {secret}"));
            Digest::of(text.as_bytes())
        });
        Self { reference, platform, who }
    }
}

#[derive(Debug, Default)]
pub(super) struct Flights {
    pulls: Mutex<HashMap<Asked, Going>>,
    /// By registry, since one that is slow holds up only those who would ask it too.
    blobs: Mutex<HashMap<(String, Digest), Weak<Turn>>>,
}

type Turn = tokio::sync::Mutex<()>;

#[derive(Debug)]
struct Going {
    flight: WeakShared<BoxFuture<'static, Result<Pulled, Arc<RemoteError>>>>,
    progress: watch::Receiver<PullProgress>,
}

impl Flights {
    /// The pull that is going on, or a new one.
    pub(super) fn join(
        &self,
        asked: &Asked,
        start: impl FnOnce() -> (Flight, watch::Receiver<PullProgress>),
    ) -> (Flight, watch::Receiver<PullProgress>) {
        let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        let going = pulls.get(asked).and_then(|going| {
            let flight = going.flight.upgrade().filter(|flight| flight.peek().is_none())?;
            Some((flight, going.progress.clone()))
        });
        if let Some(going) = going {
            return going;
        }
        pulls.retain(|_, going| going.flight.upgrade().is_some_and(|it| it.peek().is_none()));
        let (flight, progress) = start();
        if let Some(weak) = flight.downgrade() {
            pulls.insert(asked.clone(), Going { flight: weak, progress: progress.clone() });
        }
        (flight, progress)
    }

    /// The right to ask a registry for a blob, while nobody else does.
    pub(super) async fn turn(&self, registry: &str, digest: &Digest) -> OwnedMutexGuard<()> {
        let lock = {
            let mut blobs = self.blobs.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (registry.to_owned(), digest.clone());
            blobs.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
                blobs.retain(|_, lock| lock.strong_count() > 0);
                let lock = Arc::<Turn>::default();
                blobs.insert(key, Arc::downgrade(&lock));
                lock
            })
        };
        lock.lock_owned().await
    }
}
