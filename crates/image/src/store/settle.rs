//! What would not survive a loss of power yet.
//!
//! Waiting for the disk would make unpacking many times slower, and is not needed while the machine
//! is up: what a killed process has written is there. So things get their names at once, with a mark that
//! says during which boot of the machine. A thread waits for the disk and takes the marks away. A
//! mark from an earlier boot says that a thing may be torn.

use std::{
    collections::BTreeSet,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use osb_core::Chain;
use osb_sys::fs::{self, PathError};

use super::layout::Thing;

/// What comes within this time goes to the disk together, and nothing of a pull that takes no longer
/// waits meanwhile.
const GATHER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Settler {
    marks: PathBuf,
    boot: String,
    /// Whether a thread is at work, and whether there is more for it to do.
    work: Mutex<Work>,
}

#[derive(Debug, Default)]
struct Work {
    busy: bool,
    more: bool,
}

impl Settler {
    pub(super) fn new(marks: PathBuf) -> Result<Self, PathError> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Self { marks, boot: boot.trim().to_owned(), work: Mutex::default() })
    }

    /// Marks something that is about to get its name.
    pub(super) fn expect(&self, thing: &Thing) -> Result<(), PathError> {
        fs::write(self.marks.join(thing.label()), &self.boot)
    }

    /// What may be torn, because the machine went down before it was on the disk.
    pub(super) fn torn(&self) -> Result<BTreeSet<Thing>, PathError> {
        let mut torn = BTreeSet::new();
        for label in fs::names(&self.marks)? {
            if !self.is_of_this_boot(&self.marks.join(&label))? {
                torn.extend(Thing::of_label(&label));
            }
        }
        Ok(torn)
    }

    /// Says that a torn thing is gone.
    pub(super) fn forget(&self, thing: &Thing) -> Result<(), PathError> {
        fs::remove_file(self.marks.join(thing.label()))
    }

    /// Lets a thread wait for the disk, if none does.
    pub(super) fn wake(self: &Arc<Self>) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.more = true;
        if work.busy {
            return;
        }
        let settler = Arc::clone(self);
        let started =
            thread::Builder::new().name("settle".to_owned()).spawn(move || settler.settle());
        // The marks stay, and the next one that wakes it tries again.
        work.busy = started.is_ok();
    }

    fn wait_for_disk(&self) -> Result<(), PathError> {
        let mut marks = Vec::new();
        for label in fs::names(&self.marks)? {
            let mark = self.marks.join(label);
            // One of an earlier boot is about something that is lost, whatever the disk does now.
            if self.is_of_this_boot(&mark)? {
                marks.push(mark);
            }
        }
        if marks.is_empty() {
            return Ok(());
        }
        fs::sync_all_around(&self.marks)?;
        marks.iter().try_for_each(fs::remove_file)
    }

    fn is_of_this_boot(&self, mark: &Path) -> Result<bool, PathError> {
        match fs::read_to_string(mark) {
            Ok(boot) => Ok(boot == self.boot),
            // What it was about is gone.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn settle(&self) {
        loop {
            thread::sleep(GATHER);
            {
                let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
                if !work.more {
                    work.busy = false;
                    return;
                }
                work.more = false;
            }
            if let Err(error) = self.wait_for_disk() {
                tracing::warn!(error = %Chain(&error), "cannot write images to the disk for good");
            }
        }
    }
}
