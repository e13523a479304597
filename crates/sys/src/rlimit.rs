//! How many descriptors this process and those that it starts may have.

use std::{io, sync::OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What this process was started with, once it has taken more.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Lets this process have as many descriptors as it ever may.
///
/// What it starts should have what it was started with itself, see [`original`]: many programs
/// work through all numbers up to the limit, and some break on numbers above a thousand.
pub fn raise() -> io::Result<()> {
    let now = getrlimit(Resource::Nofile);
    let original = ORIGINAL.get_or_init(|| now);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: original.maximum, ..*original })?)
}

/// The limit for programs that are started, if it is not that of this process.
pub fn original() -> Option<Rlimit> {
    ORIGINAL.get().copied()
}
