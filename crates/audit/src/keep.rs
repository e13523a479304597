use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use osb_sys::fs::{self, PathError};

use crate::book::volumes;

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

/// The files of a book that may go, the oldest first.
struct OldBook {
    bytes: u64,
    files: VecDeque<(PathBuf, u64)>,
}

impl Keep {
    /// Removes what is too old, and what is too much: whoever has most loses first, so that nobody
    /// makes others forgotten.
    pub(crate) fn enforce(
        self,
        directory: &Path,
        now: Timestamp,
        is_in_use: impl Fn(&Path) -> bool,
    ) -> Result<(), PathError> {
        let oldest = SystemTime::from(now).checked_sub(self.age);
        let mut books = Vec::new();
        for name in fs::names(directory)? {
            let mut book = OldBook { bytes: 0, files: VecDeque::new() };
            for (_, path) in volumes(&directory.join(name))? {
                let Some((changed, bytes)) = fs::changed(&path)? else { continue };
                let is_free = !is_in_use(&path);
                if is_free && oldest.is_some_and(|oldest| changed < oldest) {
                    remove(&path)?;
                    continue;
                }
                book.bytes += bytes;
                if is_free {
                    book.files.push_back((path, bytes));
                }
            }
            books.push(book);
        }
        let mut bytes: u64 = books.iter().map(|book| book.bytes).sum();
        while bytes > self.bytes {
            let free = books.iter_mut().filter(|book| !book.files.is_empty());
            let Some(largest) = free.max_by_key(|book| book.bytes) else { break };
            let Some((path, length)) = largest.files.pop_front() else { break };
            remove(&path)?;
            largest.bytes -= length;
            bytes -= length;
        }
        Ok(())
    }
}

/// Removes a file, and its directory with the last one.
fn remove(path: &Path) -> Result<(), PathError> {
    fs::remove_file(path)?;
    path.parent().map_or(Ok(()), fs::remove_empty_dir)
}
