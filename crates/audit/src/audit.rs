use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use jiff::Timestamp;
use osb_api::SandboxId;
use osb_sys::fs::{self, PathError};
use serde::Serialize;

use crate::{desk::Desk, keep::Keep, writer::Writer};

/// Something that is written down.
pub trait Entry: Serialize + Send + 'static {
    fn at(&self) -> Timestamp;
    /// What it is.
    fn kind(&self) -> &'static str;
    /// Of whose share it takes: much of one hides nothing of another.
    fn share(&self) -> &'static str;
    /// What it is about, as a hash. The first about something is written down even if the share is
    /// used up.
    fn about(&self) -> u64;
}

/// Where everybody has things written down.
#[derive(Debug)]
pub struct Audit<E> {
    desk: Arc<Desk<E>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How many entries there were since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub written: u64,
    /// There were more of them than a sandbox has a share of.
    pub too_many: u64,
    /// The disk did not take them.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) written: AtomicU64,
    pub(crate) too_many: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl<E: Entry> Audit<E> {
    /// Begins to write below this directory.
    pub fn start(directory: &Path, keep: Keep) -> Result<Self, PathError> {
        fs::create_private_dir_all(directory)?;
        let desk = Arc::new(Desk::default());
        let mut writer = Writer::new(directory.to_owned(), keep);
        let theirs = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(&theirs))
            .map_err(|error| PathError::new("write audit files below", directory, error))?;
        Ok(Self { desk, thread: Mutex::new(Some(thread)) })
    }

    /// Has something written down soon. Never waits for a disk.
    pub fn note(&self, sandbox: SandboxId, entry: E) {
        self.desk.note(sandbox, entry);
    }

    /// Nothing more comes of a sandbox: its book gets a last line.
    pub fn finish(&self, sandbox: SandboxId) {
        self.desk.finish(sandbox);
    }

    pub fn counts(&self) -> Counts {
        let Counters { written, too_many, failed } = &self.desk.counters;
        let [written, too_many, failed] = [written, too_many, failed].map(|n| n.load(Relaxed));
        Counts { written, too_many, failed }
    }

    /// Writes all that waits, and ends.
    pub fn close(&self) {
        self.desk.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked has said so on standard error.
            thread.join().ok();
        }
    }
}

impl<E> Drop for Audit<E> {
    fn drop(&mut self) {
        // The thread writes what there is, and ends by itself.
        self.desk.close();
    }
}

#[cfg(test)]
mod tests;
