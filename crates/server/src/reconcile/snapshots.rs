//! Keeping files and letting go of them, as clients asked.

use std::{collections::HashMap, sync::Arc, time::Duration};

use osb_api::SnapshotId;
use osb_core::{Chain, Kept, RuntimeError};
use tokio::sync::oneshot;

use super::{Reconciler, Shared, start::StartupError};
use crate::{
    history::Happening,
    snapshot_record::{SnapshotRecord, SnapshotState},
    store::{News, StoreError, Unchanged},
};

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LAST_BACKOFF: Duration = Duration::from_secs(30);

/// Why there is no new snapshot.
#[derive(Debug)]
pub(crate) enum NotKept {
    Runtime(RuntimeError),
    Store(StoreError),
}

type Taken = Result<Arc<SnapshotRecord>, NotKept>;

impl Reconciler {
    /// Whether files can be kept here at all.
    pub(crate) fn can_keep(&self) -> bool {
        self.0.runtime.snapshots().is_some()
    }

    /// Takes a snapshot whose record is written. Nobody need wait for the answer; one that fails is
    /// recorded as failed if nobody does, and leaves nothing otherwise.
    pub(crate) fn take(&self, id: SnapshotId) -> oneshot::Receiver<Taken> {
        let (reply, answer) = oneshot::channel();
        self.0.tasks.spawn(take(Arc::clone(&self.0), id, reply));
        answer
    }

    /// Deletes a snapshot that is recorded as being deleted; tried until it succeeds. The answer
    /// is that of the first attempt.
    pub(crate) fn let_go(&self, id: SnapshotId) -> oneshot::Receiver<Result<(), NotKept>> {
        let (reply, answer) = oneshot::channel();
        self.0.tasks.spawn(let_go(Arc::clone(&self.0), id, Some(reply)));
        answer
    }
}

/// Brings the records of an earlier server together with what the runtime has.
pub(super) async fn recover(shared: &Arc<Shared>) -> Result<(), StartupError> {
    let Some(power) = shared.runtime.snapshots() else { return Ok(()) };
    let kept = power.kept().await.map_err(StartupError::ListSnapshots)?;
    let mut kept: HashMap<_, _> = kept.into_iter().map(|kept| (kept.id, kept)).collect();
    for record in shared.store.snapshots().newest_first(|_| true) {
        let found = kept.remove(&record.id);
        match (record.state, found) {
            (SnapshotState::Creating, Some(kept)) => {
                ready(shared, kept, "snapshot_recovery_ready").await?;
            }
            (SnapshotState::Creating, None) => {
                let why = "the server ended before the snapshot was whole";
                failed(shared, record.id, "snapshot_recovery_missing_image", why).await?;
            }
            (SnapshotState::Ready, None) => {
                let why = "the files of the snapshot are gone";
                failed(shared, record.id, "snapshot_recovery_missing_image", why).await?;
            }
            (SnapshotState::Deleting, _) => {
                shared.tasks.spawn(let_go(Arc::clone(shared), record.id, None));
            }
            (SnapshotState::Ready, Some(_)) | (SnapshotState::Failed, None) => {}
            // It was whole after all when somebody had given it up.
            (SnapshotState::Failed, Some(_)) => {
                if let Err(error) = power.delete(record.id).await {
                    tracing::warn!(error = %Chain(&error), "a failed snapshot could not be deleted");
                }
            }
        }
    }
    for id in kept.into_keys() {
        match power.delete(id).await {
            Ok(()) => tracing::warn!(snapshot_id = %id, "deleted a snapshot that nobody knows"),
            Err(error) => tracing::error!(
                snapshot_id = %id, error = %Chain(&error),
                "a snapshot that nobody knows could not be deleted"
            ),
        }
    }
    Ok(())
}

async fn take(shared: Arc<Shared>, id: SnapshotId, reply: oneshot::Sender<Taken>) {
    let Some(record) = shared.store.snapshots().get(id) else { return };
    let outcome = tokio::select! {
        outcome = ask(&shared, &record) => outcome,
        // The next server finds out what became of it.
        () = shared.stop.cancelled() => return,
    };
    let answer = match outcome {
        Ok(kept) => ready(&shared, kept, "snapshot_runtime_ready").await.map_err(NotKept::Store),
        Err(error) if reply.is_closed() => {
            tracing::error!(snapshot_id = %id, error = %Chain(&error), "the snapshot failed");
            let why = format!("the snapshot could not be taken: {error}");
            if let Err(error) = failed(&shared, id, "snapshot_runtime_failed", &why).await {
                tracing::error!(snapshot_id = %id, error = %Chain(&error), "cannot write that down");
            }
            return;
        }
        Err(error) => {
            let why = format!("the snapshot could not be taken: {error}");
            let news = news(&shared, &record, Happening::SnapshotFailed { id, message: why });
            match shared.store.forget_with(id, Some(news)).await {
                Ok(()) => Err(NotKept::Runtime(error)),
                Err(error) => Err(NotKept::Store(error)),
            }
        }
    };
    // Who went away finds the snapshot in the list.
    reply.send(answer).ok();
}

async fn ask(shared: &Shared, record: &SnapshotRecord) -> Result<Kept, RuntimeError> {
    match shared.runtime.snapshots() {
        Some(power) => power.take(record.sandbox, record.id).await,
        None => Err(RuntimeError::Invalid("the runtime keeps no files".to_owned())),
    }
}

async fn let_go(
    shared: Arc<Shared>,
    id: SnapshotId,
    mut reply: Option<oneshot::Sender<Result<(), NotKept>>>,
) {
    let mut pause = FIRST_BACKOFF;
    loop {
        let deleted = match shared.runtime.snapshots() {
            Some(power) => power.delete(id).await.map_err(NotKept::Runtime),
            None => Ok(()),
        };
        let done = match deleted {
            Ok(()) => shared.store.forget(id).await.map_err(NotKept::Store),
            Err(error) => Err(error),
        };
        let over = done.is_ok();
        if let Err(NotKept::Runtime(error)) = &done {
            tracing::error!(
                snapshot_id = %id, error = %Chain(error),
                "the snapshot could not be deleted; it is tried again"
            );
        }
        if let Some(reply) = reply.take() {
            // Who went away does not care.
            reply.send(done).ok();
        }
        if over {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_BACKOFF),
            () = shared.stop.cancelled() => return,
        }
    }
}

async fn ready(
    shared: &Shared,
    kept: Kept,
    reason: &'static str,
) -> Result<Arc<SnapshotRecord>, StoreError> {
    let what = Happening::SnapshotTaken { id: kept.id, bytes: kept.bytes };
    change(shared, kept.id, what, move |record, now| {
        record.bytes = Some(kept.bytes);
        record.become_state(SnapshotState::Ready, reason, "the files are kept", now);
    })
    .await
}

async fn failed(
    shared: &Shared,
    id: SnapshotId,
    reason: &'static str,
    why: &str,
) -> Result<Arc<SnapshotRecord>, StoreError> {
    let why = why.to_owned();
    let what = Happening::SnapshotFailed { id, message: why.clone() };
    change(shared, id, what, move |record, now| {
        record.become_state(SnapshotState::Failed, reason, &why, now);
    })
    .await
}

/// What became of a snapshot, for the history of its sandbox.
fn news(shared: &Shared, record: &SnapshotRecord, what: Happening) -> News {
    News { sandbox: record.sandbox, at: shared.clock.now(), what }
}

async fn change(
    shared: &Shared,
    id: SnapshotId,
    what: Happening,
    change: impl FnOnce(&mut SnapshotRecord, jiff::Timestamp) + Send + 'static,
) -> Result<Arc<SnapshotRecord>, StoreError> {
    let now = shared.clock.now();
    let news = shared.store.snapshots().get(id).map(|record| news(shared, &record, what));
    let change = move |record: &mut SnapshotRecord| {
        change(record, now);
        Ok::<(), std::convert::Infallible>(())
    };
    let changed = shared.store.update_with(id, change, news);
    match changed.await {
        Ok(record) => Ok(record),
        Err(Unchanged::Missing) => Err(StoreError::Closed),
        Err(Unchanged::Refused(never)) => match never {},
        Err(Unchanged::Store(error)) => Err(error),
    }
}
