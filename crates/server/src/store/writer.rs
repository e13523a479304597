use std::{
    collections::HashMap,
    error::Error,
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use osb_api::SandboxId;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{Index, StoreError, migrations, row};
use crate::record::Record;

/// How many jobs share one commit at most.
const BATCH: usize = 256;
/// A checkpoint waits for the disk, and whoever writes waits for the checkpoint: it is left for a
/// quiet moment, unless the log grows beyond this many pages.
const CHECKPOINT_PAGES: u32 = 16_384;
const QUIET: Duration = Duration::from_secs(1);

pub(super) type Done = oneshot::Sender<Result<(), StoreError>>;
/// Makes the next version of a record; `None` leaves it as it is.
pub(super) type Change = Box<dyn FnOnce(Option<&Record>) -> Option<Arc<Record>> + Send>;

pub(super) enum Job {
    Insert { record: Box<Record>, done: Done },
    Update { id: SandboxId, change: Change, done: Done },
    Forget { id: SandboxId, done: Done },
    Close,
}

/// The one thread that changes the database and the index.
pub(super) struct Writer {
    connection: Connection,
    index: Index,
}

impl Writer {
    pub(super) fn open(path: &Path, index: Index) -> Result<Self, StoreError> {
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
        for record in row::load(&connection)? {
            index.put(Arc::new(record));
        }
        Ok(Self { connection, index })
    }

    pub(super) fn run(mut self, jobs: &mpsc::Receiver<Job>) {
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
                    self.checkpoint();
                    behind = false;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            behind = true;
            let mut batch = Batch { index: &self.index, changed: HashMap::new(), done: Vec::new() };
            let mut open = batch.take(first);
            while open && batch.done.len() < BATCH {
                let Ok(job) = jobs.try_recv() else { break };
                open = batch.take(job);
            }
            let Batch { changed, done, .. } = batch;
            let outcome = self.commit(changed);
            for waiting in done {
                // Who went away does not care.
                waiting.send(outcome.clone()).ok();
            }
            if !open {
                break;
            }
        }
    }

    fn checkpoint(&self) {
        let done = self.connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE);");
        if let Err(error) = done {
            tracing::warn!(%error, "the database's log could not be merged; it is tried again");
        }
    }

    fn commit(&mut self, changed: Changed) -> Result<(), StoreError> {
        if changed.is_empty() {
            return Ok(());
        }
        write_all(&mut self.connection, &changed).map_err(|source| {
            StoreError::Write(match source.downcast() {
                Ok(source) => Arc::from(source),
                Err(source) => Arc::new(rusqlite::Error::ToSqlConversionFailure(source)),
            })
        })?;
        for (id, record) in changed {
            match record {
                Some(record) => self.index.put(record),
                None => self.index.remove(id),
            }
        }
        Ok(())
    }
}

type Changed = HashMap<SandboxId, Option<Arc<Record>>>;

/// Jobs that are committed together.
struct Batch<'a> {
    index: &'a Index,
    changed: Changed,
    done: Vec<Done>,
}

impl Batch<'_> {
    /// Whether there may be further jobs.
    fn take(&mut self, job: Job) -> bool {
        match job {
            Job::Insert { record, done } => {
                self.changed.insert(record.id(), Some(Arc::from(record)));
                self.done.push(done);
            }
            Job::Update { id, change, done } => {
                let current = match self.changed.get(&id) {
                    Some(pending) => pending.clone(),
                    None => self.index.get(id),
                };
                if let Some(next) = change(current.as_deref()) {
                    self.changed.insert(id, Some(next));
                }
                self.done.push(done);
            }
            Job::Forget { id, done } => {
                self.changed.insert(id, None);
                self.done.push(done);
            }
            Job::Close => return false,
        }
        true
    }
}

fn write_all(
    connection: &mut Connection,
    changed: &Changed,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let transaction = connection.transaction()?;
    for (id, record) in changed {
        match record {
            Some(record) => row::write(&transaction, record)?,
            None => row::delete(&transaction, *id)?,
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Makes the file before SQLite does: it holds tokens, and SQLite gives its companions the mode
/// of the file it finds.
fn private_file(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop)
}
