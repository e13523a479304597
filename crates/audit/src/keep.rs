use std::{
    collections::{BinaryHeap, VecDeque},
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use osb_api::SandboxId;
use osb_sys::fs::{self, PathError};

use crate::{book::volumes, read::books};

/// How much is kept of all sandboxes together, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    pub bytes: u64,
    pub age: Duration,
}

impl Default for Keep {
    fn default() -> Self {
        Self { bytes: 1 << 30, age: Duration::from_hours(90 * 24) }
    }
}

impl Keep {
    /// Begins to remove what is too old, and what is too much.
    pub(crate) fn round(self, directory: &Path, now: Timestamp) -> Result<Round, PathError> {
        Ok(Round {
            directory: directory.to_owned(),
            oldest: SystemTime::from(now).checked_sub(self.age),
            most: self.bytes,
            unseen: books(directory)?,
            seen: BinaryHeap::new(),
            bytes: 0,
            failed: None,
        })
    }
}

/// A look at all books. It is done step by step, since there may be very many, and what is to be
/// written does not wait for all of them.
#[derive(Debug)]
pub(crate) struct Round {
    directory: PathBuf,
    oldest: Option<SystemTime>,
    most: u64,
    unseen: Vec<SandboxId>,
    seen: BinaryHeap<OldBook>,
    /// How much there is of what was seen.
    bytes: u64,
    /// What could not be looked at or removed, the last of it: it keeps nothing else.
    pub(crate) failed: Option<PathError>,
}

/// What of a book may go. The largest comes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OldBook {
    bytes: u64,
    sandbox: SandboxId,
    /// The oldest first.
    files: VecDeque<(PathBuf, u64)>,
}

impl Round {
    /// Looks at one book, or removes one file: whoever has most loses first, so that nobody makes
    /// others forgotten. It breaks off once there is nothing more to do.
    pub(crate) fn step(&mut self, is_in_use: impl Fn(SandboxId, &Path) -> bool) -> ControlFlow<()> {
        let done = if let Some(sandbox) = self.unseen.pop() {
            self.look(sandbox, is_in_use)
        } else if self.bytes > self.most
            && let Some(largest) = self.seen.pop()
        {
            self.shorten(largest, is_in_use)
        } else {
            return ControlFlow::Break(());
        };
        if let Err(error) = done {
            self.failed = Some(error);
        }
        ControlFlow::Continue(())
    }

    fn look(
        &mut self,
        sandbox: SandboxId,
        is_in_use: impl Fn(SandboxId, &Path) -> bool,
    ) -> Result<(), PathError> {
        let mut book = OldBook { bytes: 0, sandbox, files: VecDeque::new() };
        for (_, path) in volumes(&self.directory.join(sandbox.to_string()))? {
            let Some((changed, bytes)) = fs::changed(&path)? else { continue };
            let is_old = self.oldest.is_some_and(|oldest| changed < oldest);
            if is_old && !is_in_use(sandbox, &path) {
                remove(&path)?;
                continue;
            }
            book.bytes += bytes;
            book.files.push_back((path, bytes));
        }
        self.bytes += book.bytes;
        self.seen.push(book);
        Ok(())
    }

    fn shorten(
        &mut self,
        mut book: OldBook,
        is_in_use: impl Fn(SandboxId, &Path) -> bool,
    ) -> Result<(), PathError> {
        let first = book.files.pop_front();
        let Some((path, bytes)) = first.filter(|(path, _)| !is_in_use(book.sandbox, path)) else {
            return Ok(());
        };
        // If it stays, so does what came after it: else the chain would be broken there.
        remove(&path)?;
        book.bytes -= bytes;
        self.bytes -= bytes;
        self.seen.push(book);
        Ok(())
    }
}

/// Removes a file, and its directory with the last one.
fn remove(path: &Path) -> Result<(), PathError> {
    fs::remove_file(path)?;
    path.parent().map_or(Ok(()), fs::remove_empty_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_book_or_one_file_so_that_others_may_write_in_between() {
        let directory = tempfile::tempdir().unwrap();
        let book = |sandbox: SandboxId| directory.path().join(sandbox.to_string());
        let all = [(); 3].map(|()| SandboxId::random());
        for sandbox in all {
            fs::create_private_dir_all(book(sandbox)).unwrap();
            fs::write(book(sandbox).join("000001.jsonl"), "x").unwrap();
        }
        let keep = Keep { bytes: 0, ..Keep::default() };
        let mut round = keep.round(directory.path(), Timestamp::UNIX_EPOCH).unwrap();
        let mut left = Vec::new();
        // One of them is written to again before its turn comes.
        while round.step(|sandbox, _| sandbox == all[1] && left.len() > 2).is_continue() {
            left.push(fs::count_entries(directory.path()).unwrap());
        }
        left.dedup();
        assert_eq!(left, [3, 2, 1]);
        assert!(book(all[1]).exists() && round.failed.is_none());
    }
}
