//! How many blobs are on their way.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{RegistryError, Settings};

/// How many registries can have all of their transfers at the same time. Each transfer has some
/// memory.
const REGISTRIES: usize = 16;

/// Each registry has its own, so that one that is slow, or wants to be, holds up nobody else.
#[derive(Debug)]
pub(crate) struct Transfers {
    parallel: usize,
    each: Mutex<HashMap<String, Weak<Semaphore>>>,
    all: Arc<Semaphore>,
}

/// The right to one transfer, until it is dropped.
#[derive(Debug)]
pub(crate) struct Transfer {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Transfers {
    pub(crate) fn new(settings: &Settings) -> Self {
        let parallel = settings.parallel.get();
        let all = Arc::new(Semaphore::new(parallel.saturating_mul(REGISTRIES).min(1024)));
        Self { parallel, each: Mutex::default(), all }
    }

    /// Waits until few enough others are on their way from or to this registry.
    pub(crate) async fn begin(&self, registry: &str) -> Result<Transfer, RegistryError> {
        let ended = |_| RegistryError::Settings("the client has ended".to_owned());
        let own = self.of(registry).acquire_owned().await.map_err(ended)?;
        let all = Arc::clone(&self.all).acquire_owned().await.map_err(ended)?;
        Ok(Transfer { _own: own, _all: all })
    }

    fn of(&self, registry: &str) -> Arc<Semaphore> {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        each.get(registry).and_then(Weak::upgrade).unwrap_or_else(|| {
            // Whoever has a permit holds what gave it.
            each.retain(|_, semaphore| semaphore.strong_count() > 0);
            let semaphore = Arc::new(Semaphore::new(self.parallel));
            each.insert(registry.to_owned(), Arc::downgrade(&semaphore));
            semaphore
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_registry_that_is_slow_holds_up_itself_alone() {
        let parallel = NonZeroUsize::new(2).unwrap();
        let transfers = Transfers::new(&Settings { parallel, ..Settings::default() });
        let slow = [transfers.begin("slow").await.unwrap(), transfers.begin("slow").await.unwrap()];
        assert!(transfers.begin("slow").now_or_never().is_none());
        drop(transfers.begin("other").await.unwrap());
        drop(slow);
        drop(transfers.begin("slow").await.unwrap());
        let many = (0..2 * REGISTRIES).map(|it| transfers.begin(&it.to_string()).now_or_never());
        let many: Vec<_> = many.map(Option::unwrap).collect();
        assert!(transfers.begin("one more").now_or_never().is_none());
        drop(many);
        assert_eq!(transfers.each.lock().unwrap().len(), 2 * REGISTRIES + 1);
        drop(transfers.begin("next").await.unwrap());
        assert_eq!(transfers.each.lock().unwrap().len(), 1);
    }
}
