use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use jiff::Timestamp;
use tokio::sync::watch;

use super::Entity;

/// Every record of one kind, in memory. Only the writer changes what is there.
#[derive(Debug)]
pub(crate) struct Index<E: Entity>(Arc<RwLock<Entries<E>>>);

#[derive(Debug)]
struct Entries<E: Entity> {
    by_id: HashMap<E::Key, watch::Sender<Arc<E>>>,
    by_age: BTreeSet<(Timestamp, E::Key)>,
}

impl<E: Entity> Default for Index<E> {
    fn default() -> Self {
        let entries = Entries { by_id: HashMap::new(), by_age: BTreeSet::new() };
        Self(Arc::new(RwLock::new(entries)))
    }
}

impl<E: Entity> Clone for Index<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: Entity> Index<E> {
    pub(crate) fn get(&self, id: E::Key) -> Option<Arc<E>> {
        self.read().by_id.get(&id).map(|entry| Arc::clone(&entry.borrow()))
    }

    /// The record and all its further versions; the channel closes when the record is deleted.
    pub(crate) fn subscribe(&self, id: E::Key) -> Option<watch::Receiver<Arc<E>>> {
        self.read().by_id.get(&id).map(watch::Sender::subscribe)
    }

    /// Those that `wanted` picks, newest first.
    pub(crate) fn newest_first(&self, wanted: impl Fn(&E) -> bool) -> Vec<Arc<E>> {
        let entries = self.read();
        let records = entries.by_age.iter().rev().filter_map(|(_, id)| entries.by_id.get(id));
        records.map(|entry| Arc::clone(&entry.borrow())).filter(|record| wanted(record)).collect()
    }

    pub(super) fn put(&self, record: Arc<E>) {
        let mut entries = self.write();
        let id = record.key();
        if let Some(entry) = entries.by_id.get(&id) {
            entry.send_replace(record);
            return;
        }
        entries.by_age.insert((record.created_at(), id));
        entries.by_id.insert(id, watch::Sender::new(record));
    }

    pub(super) fn remove(&self, id: E::Key) {
        let mut entries = self.write();
        if let Some(entry) = entries.by_id.remove(&id) {
            let created_at = entry.borrow().created_at();
            entries.by_age.remove(&(created_at, id));
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Entries<E>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries<E>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
