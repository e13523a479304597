use std::{collections::HashMap, sync::Arc};

use osb_core::{Clock, Goal, ObservedState, Phase, Runtime, RuntimeError};
use osb_gateway::Gateway;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Driver, Outbound, Reconciler, Shared, Sighting, Sightings, images, snapshots, watch};
use crate::{
    library::Library,
    store::{Store, StoreError, Unchanged},
};

/// Why the world could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    #[error("the runtime cannot say which sandboxes exist")]
    List(#[source] RuntimeError),
    #[error("the runtime cannot remove what nobody wants")]
    Remove(#[source] RuntimeError),
    #[error("the runtime cannot say which snapshots exist")]
    ListSnapshots(#[source] RuntimeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Reconciler {
    /// Takes over the world as an earlier server left it: removes what nobody knows, and drives
    /// what is known.
    pub(crate) async fn start(
        runtime: Arc<dyn Runtime>,
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        outbound: Outbound,
        library: Option<Arc<Library>>,
        gateway: Gateway,
    ) -> Result<Self, StartupError> {
        let shared = Arc::new(Shared {
            runtime,
            store,
            clock,
            sightings: Sightings::default(),
            outbound,
            library,
            gateway,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        // Before the list, so that nothing falls between the two.
        let news = shared.runtime.watch();
        let list = shared.runtime.list().await.map_err(StartupError::List)?;
        watch::remove_orphans(&shared, &list).await;
        snapshots::recover(&shared).await?;
        let mut world: HashMap<_, _> = list.into_iter().map(|seen| (seen.id, seen)).collect();
        shared.tasks.spawn(watch::pump(Arc::clone(&shared), news));
        shared.tasks.spawn(images::tidy(Arc::clone(&shared)));
        for record in shared.store.index().newest_first(|_| true) {
            let id = record.id();
            // Nobody knows who used it meanwhile.
            record.uses.note(shared.clock.now());
            let mut seen = world.remove(&id);
            if !record.announced {
                withdraw(&shared.store, id).await?;
            } else if record.phase() == Phase::Pending
                && seen.as_ref().is_some_and(|seen| seen.state == ObservedState::Starting)
            {
                // Whoever was starting it is gone: it has to be asked for again.
                seen = None;
            }
            let driver = Driver::new(Arc::clone(&shared), id, Sighting::of(seen));
            shared.tasks.spawn(driver.adopt());
        }
        Ok(Self(shared))
    }
}

/// Nobody was told of this sandbox before the earlier server ended.
async fn withdraw(store: &Store, id: osb_api::SandboxId) -> Result<(), StoreError> {
    let removed = store.update(id, |record| {
        record.desired.goal = Goal::Removed;
        Ok::<(), std::convert::Infallible>(())
    });
    match removed.await {
        Ok(_) | Err(Unchanged::Missing) => Ok(()),
        Err(Unchanged::Refused(never)) => match never {},
        Err(Unchanged::Store(error)) => Err(error),
    }
}
