use std::{
    collections::{BinaryHeap, VecDeque},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use osb_sys::fs::{self, PathError};

use crate::{book::volumes, read::books as books_below};

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

/// What of a book may go. Of two the larger one comes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OldBook {
    bytes: u64,
    /// The oldest first.
    files: VecDeque<(PathBuf, u64)>,
}

impl Keep {
    /// Removes what is too old, and what is too much: whoever has most loses first, so that nobody
    /// makes others forgotten. What cannot be looked at or removed stays, and keeps nothing else.
    pub(crate) fn enforce(
        self,
        directory: &Path,
        now: Timestamp,
        is_in_use: impl Fn(&Path) -> bool,
    ) -> Result<(), PathError> {
        let oldest = SystemTime::from(now).checked_sub(self.age);
        let is_old = |changed| oldest.is_some_and(|oldest| changed < oldest);
        let mut done = Ok(());
        let mut books = BinaryHeap::new();
        for sandbox in books_below(directory)? {
            match OldBook::look(&directory.join(sandbox.to_string()), is_old, &is_in_use) {
                Ok(book) => books.push(book),
                Err(error) => done = Err(error),
            }
        }
        let mut bytes: u64 = books.iter().map(|book| book.bytes).sum();
        while bytes > self.bytes
            && let Some(mut largest) = books.pop()
        {
            let Some((path, length)) = largest.files.pop_front() else { continue };
            if let Err(error) = remove(&path) {
                // Nothing goes that came after it: the chain would be broken there.
                done = Err(error);
                continue;
            }
            largest.bytes -= length;
            bytes -= length;
            books.push(largest);
        }
        done
    }
}

impl OldBook {
    /// Removes what is too old of a book, and tells what else there is.
    fn look(
        directory: &Path,
        is_old: impl Fn(SystemTime) -> bool,
        is_in_use: impl Fn(&Path) -> bool,
    ) -> Result<Self, PathError> {
        let mut book = Self { bytes: 0, files: VecDeque::new() };
        for (_, path) in volumes(directory)? {
            let Some((changed, bytes)) = fs::changed(&path)? else { continue };
            let is_free = !is_in_use(&path);
            if is_free && is_old(changed) {
                remove(&path)?;
                continue;
            }
            book.bytes += bytes;
            if is_free {
                book.files.push_back((path, bytes));
            }
        }
        Ok(book)
    }
}

/// Removes a file, and its directory with the last one.
fn remove(path: &Path) -> Result<(), PathError> {
    fs::remove_file(path)?;
    path.parent().map_or(Ok(()), fs::remove_empty_dir)
}
