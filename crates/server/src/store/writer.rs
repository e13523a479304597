use std::{
    collections::HashMap,
    error::Error,
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use osb_api::SandboxId;
use rusqlite::{Connection, Transaction};
use tokio::sync::oneshot;

use super::{Entity, Index, StoreError, history_row, migrations, row, snapshot_row, template_row};
use crate::{record::Record, snapshot_record::SnapshotRecord, template_record::TemplateRecord};

/// How many jobs share one commit at most.
const BATCH: usize = 256;
/// A checkpoint waits for the disk, and whoever writes waits for the checkpoint: it is left for a
/// quiet moment, unless the log grows beyond this many pages.
const CHECKPOINT_PAGES: u32 = 16_384;
const QUIET: Duration = Duration::from_secs(1);
/// How many commits the log has room for, at a few pages each.
const QUICK_COMMITS: u32 = CHECKPOINT_PAGES / 16;

pub(super) type Done = oneshot::Sender<Result<(), StoreError>>;
/// Makes the next version of a record; `None` leaves it as it is.
pub(super) type Change<E> = Box<dyn FnOnce(Option<&E>) -> Option<Arc<E>> + Send>;

pub(crate) enum Job {
    Sandbox(Edit<Record>),
    Snapshot(Edit<SnapshotRecord>),
    Template(Edit<TemplateRecord>),
    /// Both, or neither.
    Both(Box<(Job, Job)>),
    /// Something was written by somebody else than the thread.
    Behind,
    Close,
}

/// A change; to remark and to retract leaves the database as it is.
pub(crate) enum Edit<E: Entity> {
    Insert { record: Box<E>, done: Done },
    Update { id: E::Key, change: Change<E>, done: Done },
    Remark { id: E::Key, change: Change<E>, done: Done },
    Forget { id: E::Key, done: Done },
    Retract { id: E::Key, done: Done },
}

/// The one place where the database and the index are changed.
#[derive(Debug)]
pub(super) struct Writer {
    connection: Connection,
    shown: Shown,
    /// The entry of each sandbox's history that was written last.
    told: HashMap<SandboxId, u64>,
    /// How many commits are in the log since it was merged.
    unmerged: u32,
}

/// What readers see, by kind.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    pub(super) sandboxes: Index<Record>,
    pub(super) snapshots: Index<SnapshotRecord>,
    pub(super) templates: Index<TemplateRecord>,
}

/// Where the writer is, for one at a time; nobody is there once the store is closed.
pub(super) type Desk = Mutex<Option<Writer>>;

impl Writer {
    pub(super) fn open(path: &Path, shown: Shown) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Open {
            path: path.display().to_string(),
            source: Arc::new(source),
        };
        private_file(path)
            .map_err(|error| failed(rusqlite::Error::ToSqlConversionFailure(Box::new(error))))?;
        let mut connection = Connection::open(path).map_err(failed)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(failed)?;
        // A commit reaches the disk with the next checkpoint: a crash of this program loses
        // nothing, a power cut loses the newest records, whose sandboxes it ended as well.
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
                 PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};"
            ))
            .map_err(failed)?;
        migrations::migrate(&mut connection)?;
        let told = history_row::newest(&connection)?;
        for record in row::load(&connection)? {
            shown.sandboxes.put(Arc::new(record));
        }
        for record in snapshot_row::load(&connection)? {
            shown.snapshots.put(Arc::new(record));
        }
        for record in template_row::load(&connection)? {
            shown.templates.put(Arc::new(record));
        }
        begin_log(&connection).map_err(failed)?;
        Ok(Self { connection, shown, told, unmerged: 0 })
    }

    /// The thread that makes the changes which others could not make at once, until it is told to
    /// close.
    pub(super) fn run(desk: &Desk, jobs: &mpsc::Receiver<Job>) {
        let mut behind = false;
        loop {
            let first = if behind {
                jobs.recv_timeout(QUIET)
            } else {
                jobs.recv().map_err(RecvTimeoutError::from)
            };
            let first = match first {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(writer) = lock(desk).as_mut() {
                        writer.checkpoint();
                    }
                    behind = false;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            behind = true;
            let mut desk = lock(desk);
            let Some(writer) = desk.as_mut() else { break };
            let mut batch = Batch::default();
            let mut open = writer.take(first, &mut batch);
            while open && batch.done.len() < BATCH {
                let Ok(job) = jobs.try_recv() else { break };
                open = writer.take(job, &mut batch);
            }
            writer.finish(batch);
            if !open {
                break;
            }
        }
        drop(lock(desk).take());
    }

    /// Whether changes may be made by somebody who has others to attend to: not once SQLite might
    /// merge its log with the next commit.
    pub(super) fn is_quick(&self) -> bool {
        self.unmerged < QUICK_COMMITS
    }

    /// Makes a change at once. Whether it is the first since the log was merged.
    pub(super) fn make(&mut self, job: Job) -> bool {
        let is_first = self.unmerged == 0;
        let mut batch = Batch::default();
        self.take(job, &mut batch);
        self.finish(batch);
        is_first
    }

    fn finish(&mut self, batch: Batch) {
        let Batch { changes, done } = batch;
        let outcome = self.commit(changes);
        for waiting in done {
            // Who went away does not care.
            waiting.send(outcome.clone()).ok();
        }
    }

    fn checkpoint(&mut self) {
        let merged = self.connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE);");
        match merged.and_then(|()| begin_log(&self.connection)) {
            Ok(()) => self.unmerged = 0,
            Err(error) => {
                tracing::warn!(%error, "the database's log could not be merged; it is tried again");
            }
        }
    }

    /// Adds a job to the batch. Whether there may be further ones.
    fn take(&self, job: Job, batch: &mut Batch) -> bool {
        let done = match job {
            Job::Both(both) => {
                let (first, second) = *both;
                return self.take(first, batch) && self.take(second, batch);
            }
            Job::Sandbox(edit) => batch.changes.sandboxes.take(edit, &self.shown.sandboxes),
            Job::Snapshot(edit) => batch.changes.snapshots.take(edit, &self.shown.snapshots),
            Job::Template(edit) => batch.changes.templates.take(edit, &self.shown.templates),
            Job::Behind => return true,
            Job::Close => return false,
        };
        batch.done.push(done);
        true
    }

    fn commit(&mut self, changes: Changes) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        self.unmerged = self.unmerged.saturating_add(1);
        write_all(&mut self.connection, &changes, &self.told).map_err(|source| {
            StoreError::Write(match source.downcast() {
                Ok(source) => Arc::from(source),
                Err(source) => Arc::new(rusqlite::Error::ToSqlConversionFailure(source)),
            })
        })?;
        let Changes { sandboxes, snapshots, templates } = changes;
        for (id, record) in &sandboxes.0 {
            match record {
                Some(record) => self.told.insert(*id, record.history.newest()),
                None => self.told.remove(id),
            };
        }
        sandboxes.show(&self.shown.sandboxes);
        snapshots.show(&self.shown.snapshots);
        templates.show(&self.shown.templates);
        Ok(())
    }
}

/// Commits something that says nothing new. The first commit after the log was merged waits for the
/// disk: better this one than somebody's.
fn begin_log(connection: &Connection) -> rusqlite::Result<()> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    connection.pragma_update(None, "user_version", version)
}

fn lock(desk: &Desk) -> MutexGuard<'_, Option<Writer>> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Jobs that are committed together.
#[derive(Default)]
struct Batch {
    changes: Changes,
    done: Vec<Done>,
}

/// What a commit changes, by kind.
#[derive(Default)]
struct Changes {
    sandboxes: Changed<Record>,
    snapshots: Changed<SnapshotRecord>,
    templates: Changed<TemplateRecord>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.sandboxes.0.is_empty() && self.snapshots.0.is_empty() && self.templates.0.is_empty()
    }
}

/// The newest versions of what was changed; none if it was deleted.
struct Changed<E: Entity>(HashMap<E::Key, Option<Arc<E>>>);

impl<E: Entity> Default for Changed<E> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<E: Entity> Changed<E> {
    /// Makes a change, and gives back whom to tell.
    fn take(&mut self, edit: Edit<E>, index: &Index<E>) -> Done {
        match edit {
            Edit::Insert { record, done } => {
                self.0.insert(record.key(), Some(Arc::from(record)));
                done
            }
            Edit::Update { id, change, done } => {
                let current = match self.0.get(&id) {
                    Some(pending) => pending.clone(),
                    None => index.get(id),
                };
                if let Some(next) = change(current.as_deref()) {
                    self.0.insert(id, Some(next));
                }
                done
            }
            Edit::Remark { id, change, done } => {
                match self.0.get_mut(&id) {
                    // What is about to be written takes it along.
                    Some(Some(pending)) => {
                        if let Some(next) = change(Some(pending)) {
                            *pending = next;
                        }
                    }
                    Some(None) => {}
                    None => {
                        if let Some(next) = change(index.get(id).as_deref()) {
                            index.put(next);
                        }
                    }
                }
                done
            }
            Edit::Forget { id, done } => {
                self.0.insert(id, None);
                done
            }
            Edit::Retract { id, done } => {
                self.0.remove(&id);
                index.remove(id);
                done
            }
        }
    }

    fn show(self, index: &Index<E>) {
        for (id, record) in self.0 {
            match record {
                Some(record) => index.put(record),
                None => index.remove(id),
            }
        }
    }
}

type Written = Result<(), Box<dyn Error + Send + Sync>>;

fn write_all(
    connection: &mut Connection,
    changes: &Changes,
    told: &HashMap<SandboxId, u64>,
) -> Written {
    let Changes { sandboxes, snapshots, templates } = changes;
    let transaction = connection.transaction()?;
    let write_sandbox = |transaction: &Transaction<'_>, record: &Record| {
        row::write(transaction, record)?;
        if !record.is_clients() {
            return Ok(());
        }
        let told = told.get(&record.id()).copied().unwrap_or(0);
        history_row::write(transaction, record.id(), &record.history, told)
    };
    write_changes(&transaction, sandboxes, write_sandbox, row::delete)?;
    write_changes(&transaction, snapshots, snapshot_row::write, snapshot_row::delete)?;
    write_changes(&transaction, templates, template_row::write, template_row::delete)?;
    transaction.commit()?;
    Ok(())
}

fn write_changes<E: Entity>(
    transaction: &Transaction<'_>,
    changed: &Changed<E>,
    write: impl Fn(&Transaction<'_>, &E) -> Written,
    delete: impl Fn(&Transaction<'_>, E::Key) -> rusqlite::Result<()>,
) -> Written {
    for (id, record) in &changed.0 {
        match record {
            Some(record) => write(transaction, record)?,
            None => delete(transaction, *id)?,
        }
    }
    Ok(())
}

/// Makes the file before SQLite does: it holds tokens, and SQLite gives its companions the mode
/// of the file it finds.
fn private_file(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_the_disk_because_the_log_was_merged() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("test.db");
        let mut writer = Writer::open(&path, Shown::default()).expect("a database");
        // Each beginning of the log, which is when the disk is waited for, has another salt.
        let salt = || {
            let log = osb_sys::fs::read(directory.path().join("test.db-wal")).expect("a log");
            log.get(16..24).expect("its head").to_vec()
        };
        let at_first = salt();
        writer.connection.execute_batch("CREATE TABLE one (a)").expect("a commit");
        assert_eq!(salt(), at_first);
        writer.checkpoint();
        let begun = salt();
        assert_ne!(begun, at_first);
        writer.connection.execute_batch("CREATE TABLE other (a)").expect("a commit");
        assert_eq!(salt(), begun);
    }
}
