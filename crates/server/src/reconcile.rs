//! Brings the world to what was asked for: one driver per sandbox, fed by one watch.
//!
//! Handlers write desired state into the store and wait for the outcome there; drivers alone change
//! sandboxes. Nothing here is remembered across a restart: the store says what should be, the
//! runtime says what is.

mod birth;
mod driver;
mod network;
mod sighting;
mod snapshots;
mod start;
mod vault;
mod watch;

use std::{fmt, sync::Arc, time::Duration};

use osb_api::SandboxId;
use osb_core::{Clock, PoolStatus, Runtime, RuntimeError, StageTimes, Used, Volumes};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

pub(crate) use self::birth::{Creating, NotCreated};
pub(crate) use self::network::Outbound;
pub(crate) use self::snapshots::NotKept;
pub use self::start::StartupError;
use self::{
    birth::Birth,
    driver::Driver,
    sighting::{Sighting, Sightings},
};
use crate::{record::Record, store::Store};

/// How long drivers get to finish their step when the server ends.
const LAST_STEP: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Reconciler(Arc<Shared>);

struct Shared {
    runtime: Arc<dyn Runtime>,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    sightings: Sightings,
    outbound: Outbound,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Reconciler {
    /// Begins to make a sandbox, and answers within `patience` as far as it has come. Dropping the
    /// result before it is answered takes the sandbox back.
    pub(crate) fn create(&self, record: Record, patience: Duration) -> Creating {
        let id = record.id();
        let (birth, answer) = birth::pair(patience);
        let driver = Driver::new(Arc::clone(&self.0), id, Sighting::default());
        let driver = driver.bear(record, birth);
        Creating::new(id, answer, Arc::clone(&self.0.store), driver, self.0.tasks.clone())
    }

    /// Whether sandboxes can be paused here at all.
    pub(crate) fn can_pause(&self) -> bool {
        self.0.runtime.pause().is_some()
    }

    /// What a sandbox uses, or why that is not known; without a reason, the runtime never knows.
    pub(crate) async fn usage(&self, id: SandboxId) -> Result<Used, Option<RuntimeError>> {
        self.0.runtime.usage().ok_or(None)?.usage(id).await.map_err(Some)
    }

    /// The volumes that the runtime keeps, if it does. Nobody else writes down which there are.
    pub(crate) fn volumes(&self) -> Option<&dyn Volumes> {
        self.0.runtime.volumes()
    }

    /// What the runtime keeps started for those who will ask.
    pub(crate) fn pools(&self) -> Vec<PoolStatus> {
        self.0.runtime.pools()
    }

    /// How long the stages of starting sandboxes took.
    pub(crate) fn stages(&self) -> Vec<StageTimes> {
        self.0.runtime.stages()
    }

    pub(crate) fn stop_on_drop(&self) -> DropGuard {
        self.0.stop.clone().drop_guard()
    }

    /// Stops driving, and all that leaves the sandboxes, which live on.
    pub(crate) async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        if tokio::time::timeout(LAST_STEP, self.0.tasks.wait()).await.is_err() {
            tracing::warn!("some sandboxes were still being changed when the server ended");
        }
        self.0.outbound.egress.stop().await;
    }
}

impl fmt::Debug for Reconciler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconciler").field("drivers", &self.0.tasks.len()).finish_non_exhaustive()
    }
}
