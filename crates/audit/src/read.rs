use std::{
    io,
    path::{Path, PathBuf},
};

use osb_api::SandboxId;
use osb_sys::fs::{self, PathError};

use crate::{
    book::{self, Lines, volumes},
    chain::Chain,
};

/// A book in which every line fits the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The numbers of its first and last line. Those before the first were thrown away with age.
    pub first: u64,
    pub last: u64,
    /// The hash of the last line: whoever noted it elsewhere sees that none was cut off.
    pub hash: String,
    /// Whether the last line says that nothing more comes.
    pub is_finished: bool,
    /// Whether a crash left a piece of a line at the end.
    pub is_torn: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("there is none of sandbox {0}")]
    Missing(SandboxId),
    /// Nothing was written yet, or nothing of it was left.
    #[error("there is no entry in it")]
    Empty,
    #[error("entry {number} does not fit the one before it ({}, line {line})", file.display())]
    Broken { number: u64, file: PathBuf, line: u64 },
}

/// The sandboxes of which there is a book below a directory.
pub fn books(directory: &Path) -> Result<Vec<SandboxId>, PathError> {
    let mut books: Vec<SandboxId> =
        fs::names(directory)?.iter().filter_map(|name| name.parse().ok()).collect();
    books.sort_unstable();
    Ok(books)
}

/// Reads the book of a sandbox from its first line to its last, and tells each of them that fits.
pub fn read<E: From<Fault>>(
    directory: &Path,
    sandbox: SandboxId,
    mut told: impl FnMut(&str) -> Result<(), E>,
) -> Result<Verified, E> {
    let directory = directory.join(sandbox.to_string());
    let volumes = volumes(&directory).map_err(Fault::from)?;
    if volumes.is_empty() && !directory.exists() {
        return Err(Fault::Missing(sandbox).into());
    }
    let last_volume = volumes.last().map(|(number, _)| *number);
    let mut first = None;
    let mut chain: Option<Chain> = None;
    let (mut is_finished, mut is_torn) = (false, false);
    for (volume, path) in volumes {
        let mut lines = Lines::new(fs::open(&path).map_err(Fault::from)?);
        let mut count = 0;
        loop {
            count += 1;
            let broken = || {
                let number = chain.map_or(1, |chain| chain.number + 1);
                Fault::Broken { number, file: path.clone(), line: count }
            };
            let line = match lines.next_line() {
                Ok(None) => break,
                Ok(Some(line)) => line,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(broken().into());
                }
                Err(error) => return Err(Fault::from(PathError::new("read", &path, error)).into()),
            };
            let next = match count {
                1 => book::begin(chain, sandbox, line),
                _ => chain.and_then(|chain| chain.follow(line)),
            };
            let text = str::from_utf8(line).ok();
            let (next, text) = next.zip(text).ok_or_else(broken)?;
            told(text)?;
            first.get_or_insert(next.number);
            is_finished = book::is_last(line);
            chain = Some(next);
        }
        is_torn = lines.is_torn();
        // A crash leaves that only where nothing came after it.
        if is_torn && Some(volume) != last_volume {
            let number = chain.map_or(1, |chain| chain.number + 1);
            return Err(Fault::Broken { number, file: path, line: count }.into());
        }
    }
    let (Some(first), Some(Chain { number: last, hash })) = (first, chain) else {
        return Err(Fault::Empty.into());
    };
    Ok(Verified { first, last, hash: hash.to_string(), is_finished, is_torn })
}
