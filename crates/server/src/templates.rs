//! Sandboxes that are prepared once and started many times.
//!
//! ```text
//!  request ──► sandbox of the server's own ──► ready, warm ──► its files are a snapshot ──► gone
//!                                                                 └─► sandboxes from the template
//! ```
//!
//! Nothing of a build outlives the server but the record: the next one sweeps away what an unfinished
//! build kept, and builds again.

mod build;
mod probe;

use std::{collections::HashSet, sync::Arc};

use osb_api::{SnapshotId, TemplateId, lifecycle::TemplatePhase};
use osb_core::Chain;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{
    app::App,
    error::ApiError,
    snapshot_record::{SnapshotRecord, SnapshotState},
    store::{StoreError, Unchanged},
    template_record::{KeptFiles, TemplateRecord},
};

/// How many templates are built at a time, and how many may wait beside them.
const AT_WORK: usize = 4;
const WAITING: usize = 60;

/// What all builds of templates share.
#[derive(Debug)]
pub(crate) struct Templates {
    places: Arc<Semaphore>,
    turns: Semaphore,
}

/// A place among those that are built or wait for it.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Default for Templates {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(AT_WORK + WAITING));
        Self { places, turns: Semaphore::new(AT_WORK) }
    }
}

impl Templates {
    /// Takes a place, if there is one.
    pub(crate) fn enter(&self) -> Result<Place, ApiError> {
        let permit = Arc::clone(&self.places).try_acquire_owned();
        let permit = permit.map_err(|_| {
            ApiError::busy("too many templates are waiting to be built; try again later")
        })?;
        Ok(Place { _permit: permit })
    }
}

/// Goes on with what an earlier server left.
pub(crate) fn recover(app: &App) {
    if !app.reconciler.can_keep() {
        return;
    }
    let mut wanted = HashSet::new();
    for record in app.store.templates().newest_first(|_| true) {
        if record.is_unfinished() {
            let (ours, place) = (Arc::clone(app), app.templates.enter().ok());
            app.reconciler.beside(async move {
                build::build(&ours, record.id).await;
                drop(place);
            });
        } else if let Some(KeptFiles { snapshot, .. }) = record.kept {
            let is_there = |found: &SnapshotRecord| found.state == SnapshotState::Ready;
            if app.store.snapshots().get(snapshot).is_some_and(|found| is_there(&found)) {
                wanted.insert(snapshot);
            } else {
                lose(app, record.id);
            }
        }
    }
    let unwanted = |record: &SnapshotRecord| {
        record.template.is_some()
            && record.state != SnapshotState::Deleting
            && !wanted.contains(&record.id)
    };
    let unwanted = app.store.snapshots().newest_first(unwanted);
    let ours = Arc::clone(app);
    app.reconciler.beside(async move {
        for record in unwanted {
            let_go(&ours, record.id).await;
        }
    });
}

/// The files of a template that was finished are gone.
fn lose(app: &App, id: TemplateId) {
    let now = app.clock.now();
    app.store.update_later(id, move |record: &mut TemplateRecord| {
        record.kept = None;
        let why = "the files of the template are gone: build it again".to_owned();
        record.become_phase(TemplatePhase::Failed, Some(why), now);
    });
}

/// Writes down a new template, and builds it beside everything else, whether or not anybody waits.
pub(crate) async fn begin(
    app: &App,
    record: TemplateRecord,
    place: Place,
) -> Result<(), StoreError> {
    let (reply, written) = oneshot::channel();
    let (ours, id) = (Arc::clone(app), record.id);
    app.reconciler.beside(async move {
        let inserted = ours.store.insert(record).await;
        let is_there = inserted.is_ok();
        reply.send(inserted).ok();
        if is_there {
            build::build(&ours, id).await;
        }
        drop(place);
    });
    written.await.unwrap_or(Err(StoreError::Closed))
}

/// Forgets a template that is not being built, and then its files, whether or not anybody waits.
pub(crate) async fn forget(app: &App, record: Arc<TemplateRecord>) -> Result<(), StoreError> {
    let (reply, done) = oneshot::channel();
    let ours = Arc::clone(app);
    app.reconciler.beside(async move {
        // In this order: files of which no template knows are swept away at the next start.
        let forgotten = ours.store.forget(record.id).await;
        if let (Ok(()), Some(kept)) = (&forgotten, &record.kept) {
            let_go(&ours, kept.snapshot).await;
        }
        reply.send(forgotten).ok();
    });
    done.await.unwrap_or(Err(StoreError::Closed))
}

/// Deletes the files of a template of which nobody knows any more; tried until it succeeds.
async fn let_go(app: &App, id: SnapshotId) {
    let now = app.clock.now();
    let marked = app.store.update(id, move |record: &mut SnapshotRecord| {
        let message = "the template is deleted";
        record.become_state(SnapshotState::Deleting, "template_deleted", message, now);
        Ok::<(), std::convert::Infallible>(())
    });
    match marked.await {
        Ok(_) => {}
        Err(Unchanged::Missing) => return,
        Err(Unchanged::Refused(never)) => match never {},
        Err(Unchanged::Store(error)) => {
            tracing::error!(
                snapshot_id = %id, error = %Chain(&error),
                "the files of a template stay until the next start"
            );
            return;
        }
    }
    // Whoever has waited long enough leaves the rest to others.
    tokio::time::timeout(app.patience, app.reconciler.let_go(id)).await.ok();
}
