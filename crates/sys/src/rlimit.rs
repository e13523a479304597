//! How many descriptors this process and those that it starts may have.

use std::{io, sync::OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What this process was started with, once it has taken more.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// How many descriptors are enough for anything: one takes no memory before it is used.
const PLENTY: u64 = 1 << 18;

/// Lets this process have as many descriptors as it ever may, or [`PLENTY`].
///
/// What it starts should have what it was started with itself, see [`original`]: many programs
/// work through all numbers up to the limit, and some break on numbers above a thousand.
pub fn raise() -> io::Result<()> {
    let now = getrlimit(Resource::Nofile);
    let original = ORIGINAL.get_or_init(|| now);
    let all = original.maximum;
    let more = all.map(|all| all.max(PLENTY));
    // More than it was given needs a privilege.
    setrlimit(Resource::Nofile, Rlimit { current: more, maximum: more })
        .or_else(|_| setrlimit(Resource::Nofile, Rlimit { current: all, maximum: all }))?;
    Ok(())
}

/// The limit for programs that are started, if it is not that of this process.
pub fn original() -> Option<Rlimit> {
    ORIGINAL.get().copied()
}
