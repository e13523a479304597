//! What the server remembers: SQLite on disk, an index in memory, one writer of both.
//!
//! All changes go through it, one after the other, so a change is a plain function of the record it
//! finds. Whoever finds it idle has the change made at once, by the thread that it is on; others leave
//! theirs to the thread of the store. Whatever waits together is committed together. The index shows a
//! change once it is committed; reads never touch the database. Only what a crash is to undo may be in the index
//! alone: a sandbox of which nobody was told is written down together with its first change.

mod entity;
mod history_row;
mod index;
mod migrations;
mod row;
mod snapshot_row;
mod template_row;
mod writer;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
};

use jiff::Timestamp;
use osb_api::SandboxId;
use osb_sys::in_place::in_place;
use tokio::sync::oneshot;

pub(crate) use self::index::Index;
use self::{
    entity::{Entity, Key},
    writer::{Desk, Edit, Job, Shown, Writer},
};
use crate::{
    history::Happening, record::Record, snapshot_record::SnapshotRecord,
    template_record::TemplateRecord,
};

/// The store cannot do its work.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("cannot open the database {path}")]
    Open {
        path: String,
        #[source]
        source: Arc<rusqlite::Error>,
    },
    #[error("cannot start the thread that writes the database")]
    Thread(#[source] Arc<std::io::Error>),
    #[error("the database was written by a newer version of this program (schema {0})")]
    TooNew(i64),
    #[error("cannot read the record of {what} {id}")]
    Unreadable {
        what: &'static str,
        id: String,
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    #[error("cannot read the database")]
    Read(#[source] Arc<rusqlite::Error>),
    #[error("cannot write to the database")]
    Write(#[source] Arc<rusqlite::Error>),
    #[error("the store is closed")]
    Closed,
}

/// Why a record was not changed.
#[derive(Debug)]
pub(crate) enum Unchanged<E> {
    /// There is no such record.
    Missing,
    /// The change itself said no.
    Refused(E),
    Store(StoreError),
}

impl<E> From<StoreError> for Unchanged<E> {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What happened to a sandbox, of which something else is the record.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) sandbox: SandboxId,
    pub(crate) at: Timestamp,
    pub(crate) what: Happening,
}

#[derive(Debug)]
pub(crate) struct Store {
    desk: Arc<Desk>,
    jobs: mpsc::Sender<Job>,
    shown: Shown,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Opens the database, brings its schema up to date, and loads every record.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let shown = Shown::default();
        let (jobs, inbox) = mpsc::channel();
        let writer = Writer::open(path, shown.clone())?;
        let desk = Arc::new(Mutex::new(Some(writer)));
        let theirs = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || Writer::run(&theirs, &inbox))
            .map_err(|source| StoreError::Thread(Arc::new(source)))?;
        Ok(Self { desk, jobs, shown, thread: Mutex::new(Some(thread)) })
    }

    /// The sandboxes.
    pub(crate) fn index(&self) -> &Index<Record> {
        &self.shown.sandboxes
    }

    pub(crate) fn snapshots(&self) -> &Index<SnapshotRecord> {
        &self.shown.snapshots
    }

    pub(crate) fn templates(&self) -> &Index<TemplateRecord> {
        &self.shown.templates
    }

    pub(crate) async fn insert<E: Entity>(&self, record: E) -> Result<(), StoreError> {
        let (done, committed) = oneshot::channel();
        self.send(E::job(Edit::Insert { record: Box::new(record), done }))?;
        committed.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Shows the record of a new sandbox. It is written down with its first change.
    pub(crate) fn introduce(&self, record: Record) {
        self.shown.sandboxes.put(Arc::new(record));
    }

    /// Changes what is shown of a sandbox, and writes nothing: for what is told often, and for what a
    /// crash is to undo. It is written down with the next change.
    pub(crate) async fn remark(
        &self,
        id: SandboxId,
        change: impl FnOnce(&mut Record) + Send + 'static,
    ) -> Result<(), StoreError> {
        let change = Box::new(move |current: Option<&Record>| {
            let mut next = current?.clone();
            change(&mut next);
            Some(Arc::new(next))
        });
        let (done, made) = oneshot::channel();
        self.send(Record::job(Edit::Remark { id, change, done }))?;
        made.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Takes a sandbox out of the index alone, for it cannot be written down.
    pub(crate) async fn retract(&self, id: SandboxId) -> Result<(), StoreError> {
        let (done, committed) = oneshot::channel();
        self.send(Record::job(Edit::Retract { id, done }))?;
        committed.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Applies `change` to the newest version of the record. An error from `change` leaves it as
    /// it is.
    pub(crate) async fn update<K: Key, E: Send + 'static>(
        &self,
        id: K,
        change: impl FnOnce(&mut K::Of) -> Result<(), E> + Send + 'static,
    ) -> Result<Arc<K::Of>, Unchanged<E>> {
        self.update_with(id, change, None).await
    }

    /// The same, and at the same time tells of it in the history of a sandbox.
    pub(crate) async fn update_with<K: Key, E: Send + 'static>(
        &self,
        id: K,
        change: impl FnOnce(&mut K::Of) -> Result<(), E> + Send + 'static,
        news: Option<News>,
    ) -> Result<Arc<K::Of>, Unchanged<E>> {
        let (verdict, mut said) = oneshot::channel();
        let (done, committed) = oneshot::channel();
        let change = Box::new(move |current: Option<&K::Of>| {
            let (next, answer) = decide(current, change);
            // A caller that went away has no use for the answer; the change stands.
            verdict.send(answer).ok();
            next
        });
        let job = K::Of::job(Edit::Update { id, change, done });
        self.send(with_news(job, news))?;
        committed.await.unwrap_or(Err(StoreError::Closed))?;
        said.try_recv().unwrap_or(Err(Unchanged::Store(StoreError::Closed)))
    }

    /// Like [`Store::update`], for callers that cannot wait.
    pub(crate) fn update_later<K: Key>(
        &self,
        id: K,
        change: impl FnOnce(&mut K::Of) + Send + 'static,
    ) {
        let change = Box::new(move |current: Option<&K::Of>| {
            let mut next = current?.clone();
            change(&mut next);
            Some(Arc::new(next))
        });
        let (done, _nobody_waits) = oneshot::channel();
        // A store that is closed belongs to a server that is ending.
        self.send(K::Of::job(Edit::Update { id, change, done })).ok();
    }

    /// Deletes the record. Absence is success.
    pub(crate) async fn forget<K: Key>(&self, id: K) -> Result<(), StoreError> {
        self.forget_with(id, None).await
    }

    /// The same, and at the same time tells of it in the history of a sandbox.
    pub(crate) async fn forget_with<K: Key>(
        &self,
        id: K,
        news: Option<News>,
    ) -> Result<(), StoreError> {
        let (done, committed) = oneshot::channel();
        self.send(with_news(K::Of::job(Edit::Forget { id, done }), news))?;
        committed.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Writes what was submitted so far and ends the thread.
    pub(crate) fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.jobs.send(Job::Close).ok();
            // A thread that panicked has said so on standard error.
            thread.join().ok();
        }
    }

    /// Has a change made, here and now if nobody else makes one: to have the thread do it takes twice
    /// as long.
    fn send(&self, job: Job) -> Result<(), StoreError> {
        if let Ok(mut desk) = self.desk.try_lock() {
            let writer = desk.as_mut().ok_or(StoreError::Closed)?;
            if writer.is_quick() {
                let is_first = in_place(|| writer.make(job));
                drop(desk);
                if is_first {
                    // The thread has something to merge when it is quiet again.
                    self.jobs.send(Job::Behind).ok();
                }
                return Ok(());
            }
        }
        self.jobs.send(job).map_err(|_| StoreError::Closed)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

/// The job, together with that of telling the news. A sandbox that is gone has no history.
fn with_news(job: Job, news: Option<News>) -> Job {
    let Some(News { sandbox: id, at, what }) = news else { return job };
    let change = Box::new(move |current: Option<&Record>| {
        let mut next = current?.clone();
        next.tell(at, what);
        Some(Arc::new(next))
    });
    let (done, _nobody_waits) = oneshot::channel();
    Job::Both(Box::new((job, Record::job(Edit::Update { id, change, done }))))
}

type Verdict<R, E> = Result<Arc<R>, Unchanged<E>>;

fn decide<R: Entity, E>(
    current: Option<&R>,
    change: impl FnOnce(&mut R) -> Result<(), E>,
) -> (Option<Arc<R>>, Verdict<R, E>) {
    let Some(current) = current else { return (None, Err(Unchanged::Missing)) };
    let mut next = current.clone();
    match change(&mut next) {
        Ok(()) => {
            let next = Arc::new(next);
            (Some(Arc::clone(&next)), Ok(next))
        }
        Err(refused) => (None, Err(Unchanged::Refused(refused))),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use osb_api::SnapshotId;
    use tokio::task::JoinSet;

    use super::*;
    use crate::snapshot_record::SnapshotState;

    fn snapshot() -> SnapshotRecord {
        SnapshotRecord {
            id: SnapshotId::random(),
            sandbox: SandboxId::random(),
            name: None,
            image: osb_core::ImageName::new("host"),
            image_digest: None,
            template: None,
            state: SnapshotState::Ready,
            reason: String::new(),
            message: String::new(),
            since: Timestamp::UNIX_EPOCH,
            created_at: Timestamp::UNIX_EPOCH,
            bytes: Some(0),
        }
    }

    /// More than may be made without the thread.
    const EACH: u64 = 200;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn changes_that_come_at_once_are_made_one_after_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("database");
        let store = Arc::new(Store::open(&path).unwrap());
        let first = snapshot();
        let id = first.id;
        store.insert(first).await.unwrap();
        let mut callers = JoinSet::new();
        for _ in 0..8 {
            let store = Arc::clone(&store);
            callers.spawn(async move {
                for _ in 0..EACH {
                    let change = |record: &mut SnapshotRecord| {
                        record.bytes = record.bytes.map(|bytes| bytes + 1);
                        Ok::<(), Infallible>(())
                    };
                    store.update(id, change).await.unwrap();
                }
            });
        }
        callers.join_all().await;
        store.close();
        assert!(matches!(store.insert(snapshot()).await, Err(StoreError::Closed)));
        let again = Store::open(&path).unwrap();
        assert_eq!(again.snapshots().get(id).unwrap().bytes, Some(8 * EACH));
    }
}
