//! Removing what nobody wants any more while no server runs.

use std::path::Path;

use osb_core::{Clock, LastUse, Observed, Runtime, Step, plan};

use crate::{
    reconcile::StartupError,
    record::Record,
    server::{DATABASE, StartError, lock},
    snapshot_record::SnapshotState,
    store::Store,
};

/// Whether somebody could say what is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Known,
    /// There is no database, and everything stays.
    Unknown,
}

/// Removes the sandboxes and snapshots that a server with this data directory would remove when it
/// starts, and touches no other. Fails if a server runs, and at the first that cannot be removed.
pub async fn remove_unwanted(
    data_dir: &Path,
    runtime: &dyn Runtime,
    clock: &dyn Clock,
) -> Result<Wanted, StartError> {
    let database = data_dir.join(DATABASE);
    if !database.exists() {
        return Ok(Wanted::Unknown);
    }
    let lock = lock(data_dir)?;
    let store = Store::open(&database)?;
    let removed = remove(&store, runtime, clock).await;
    store.close();
    drop(lock);
    removed.map_err(StartError::Sandboxes)?;
    Ok(Wanted::Known)
}

async fn remove(
    store: &Store,
    runtime: &dyn Runtime,
    clock: &dyn Clock,
) -> Result<(), StartupError> {
    for seen in runtime.list().await.map_err(StartupError::List)? {
        let record = store.index().get(seen.id);
        if !record.is_some_and(|record| is_wanted(&record, &seen, clock)) {
            runtime.remove(seen.id).await.map_err(StartupError::Remove)?;
        }
    }
    let Some(power) = runtime.snapshots() else { return Ok(()) };
    for kept in power.kept().await.map_err(StartupError::ListSnapshots)? {
        match store.snapshots().get(kept.id).map(|record| record.state) {
            Some(SnapshotState::Creating | SnapshotState::Ready) => {}
            Some(SnapshotState::Deleting | SnapshotState::Failed) | None => {
                power.delete(kept.id).await.map_err(StartupError::Remove)?;
            }
        }
    }
    Ok(())
}

/// Nobody was told of a sandbox that is not announced.
fn is_wanted(record: &Record, seen: &Observed, clock: &dyn Clock) -> bool {
    let steps = plan(&record.desired, Some(seen), LastUse::Now, clock.now());
    record.announced && !steps.contains(&Step::Remove)
}
