//! Brings the world to what was asked for: one driver per sandbox, fed by one watch.
//!
//! Handlers write desired state into the store and wait for the outcome there; drivers alone change
//! sandboxes. Nothing here is remembered across a restart: the store says what should be, the
//! runtime says what is.

mod birth;
mod driver;
mod image;
mod images;
mod network;
mod rest;
mod sighting;
mod snapshots;
mod start;
mod vault;
mod watch;

use std::{fmt, sync::Arc, time::Duration};

use osb_api::SandboxId;
use osb_core::{Builds, Clock, Goal, PoolStatus, Runtime, RuntimeError, StageTimes, Used, Volumes};
use osb_gateway::Gateway;
use osb_registry::Login;
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
use crate::{library::Library, record::Record, store::Store};

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
    /// The images, if the runtime leaves them to the server.
    library: Option<Arc<Library>>,
    /// The way to execd in sandboxes.
    gateway: Gateway,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Reconciler {
    /// Begins to make a sandbox, and answers within `patience` as far as it has come. Dropping the
    /// result before it is answered takes the sandbox back. The login is for the registry of its
    /// image, and not kept.
    pub(crate) fn create(
        &self,
        record: Record,
        login: Option<Login>,
        patience: Duration,
    ) -> Creating {
        let id = record.id();
        let (birth, answer) = birth::pair(patience);
        let driver = Driver::new(Arc::clone(&self.0), id, Sighting::default());
        let driver = driver.bear(record, login, birth);
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

    /// What a sandbox printed last, or why that is not known; without a reason, the runtime never
    /// knows.
    pub(crate) async fn printed(&self, id: SandboxId) -> Result<Vec<u8>, Option<RuntimeError>> {
        self.0.runtime.printed().ok_or(None)?.printed(id).await.map_err(Some)
    }

    /// The volumes that the runtime keeps, if it does. Nobody else writes down which there are.
    pub(crate) fn volumes(&self) -> Option<&dyn Volumes> {
        self.0.runtime.volumes()
    }

    /// The power to build images, if the runtime has it. It belongs to steps of builds alone, of
    /// which no client hears.
    pub(crate) fn builds(&self) -> Option<&dyn Builds> {
        self.0.runtime.builds()
    }

    /// Whether something listens on a port of a sandbox.
    pub(crate) async fn takes_connections(
        &self,
        id: SandboxId,
        port: u16,
        within: Duration,
    ) -> bool {
        let dialled = tokio::time::timeout(within, self.0.runtime.dial(id, port)).await;
        dialled.is_ok_and(|dialled| dialled.is_ok())
    }

    /// Has a sandbox removed. Nobody waits for it.
    pub(crate) fn dismiss(&self, id: SandboxId) {
        self.0.store.update_later(id, |record| {
            record.desired.goal = Goal::Removed;
            record.requests += 1;
        });
    }

    /// Does something beside everything else, until the server ends.
    pub(crate) fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move {
            stop.run_until_cancelled(work).await;
        });
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
        if let Some(library) = &self.0.library {
            // What is half unpacked is of no use, and whole layers stay.
            library.images().break_off();
        }
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
