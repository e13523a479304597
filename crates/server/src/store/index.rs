use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use jiff::Timestamp;
use osb_api::SandboxId;
use tokio::sync::watch;

use crate::record::Record;

/// Every record, in memory. Only the writer changes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index(Arc<RwLock<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    by_id: HashMap<SandboxId, watch::Sender<Arc<Record>>>,
    by_age: BTreeSet<(Timestamp, SandboxId)>,
}

impl Index {
    pub(crate) fn get(&self, id: SandboxId) -> Option<Arc<Record>> {
        self.read().by_id.get(&id).map(|entry| Arc::clone(&entry.borrow()))
    }

    /// The record and all its further versions; the channel closes when the record is deleted.
    pub(crate) fn subscribe(&self, id: SandboxId) -> Option<watch::Receiver<Arc<Record>>> {
        self.read().by_id.get(&id).map(watch::Sender::subscribe)
    }

    /// Those that `wanted` picks, newest first.
    pub(crate) fn newest_first(&self, wanted: impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        let entries = self.read();
        let records = entries.by_age.iter().rev().filter_map(|(_, id)| entries.by_id.get(id));
        records.map(|entry| Arc::clone(&entry.borrow())).filter(|record| wanted(record)).collect()
    }

    pub(super) fn put(&self, record: Arc<Record>) {
        let mut entries = self.write();
        let id = record.id();
        if let Some(entry) = entries.by_id.get(&id) {
            entry.send_replace(record);
            return;
        }
        entries.by_age.insert((record.created_at, id));
        entries.by_id.insert(id, watch::Sender::new(record));
    }

    pub(super) fn remove(&self, id: SandboxId) {
        let mut entries = self.write();
        if let Some(entry) = entries.by_id.remove(&id) {
            let created_at = entry.borrow().created_at;
            entries.by_age.remove(&(created_at, id));
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
