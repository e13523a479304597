//! Serving without being root: as root of a user namespace that has the ids which the system lends
//! to its users.
//!
//! In that namespace, 0 is the user and 1 to 65536 are his first range of subordinate ids. Nearly
//! all that the host's root can do for a sandbox, its root can do too; what it cannot is why
//! [`Rights`] are asked for.

mod enter;
mod subordinate;

use std::io;

pub use self::enter::{enter, join};
use crate::{
    fs,
    userns::{IdBase, RANGE},
};

/// The ids that all sandboxes of a user have in common: files cannot be shown with other owners
/// than they have, except by the host's root.
pub const SHARED: IdBase = IdBase(1);

/// With which rights this process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Those of the host's root.
    Root,
    /// Those of a user who is root of a user namespace.
    User,
}

impl Rights {
    /// Those of this process, by the ids of its user namespace.
    pub fn current() -> io::Result<Self> {
        let map = fs::read_to_string("/proc/self/uid_map").map_err(io::Error::other)?;
        Ok(Self::of_map(&map))
    }

    fn of_map(map: &str) -> Self {
        let all = ranges(map).any(|range| range == (0, 0, u64::from(u32::MAX)));
        if all { Self::Root } else { Self::User }
    }

    /// The ids of the sandbox to which `own` was given, which no other sandbox has been given.
    pub fn ids_of(self, own: IdBase) -> IdBase {
        match self {
            Self::Root => own,
            Self::User => SHARED,
        }
    }

    /// What owners of files in a layer are counted from, for sandboxes to stand on it.
    pub fn ids_of_layers(self) -> IdBase {
        match self {
            // Each sandbox sees it with owners of its own.
            Self::Root => IdBase(0),
            Self::User => SHARED,
        }
    }
}

/// Whether sandboxes can have the shared ids in the user namespace of this process.
pub fn has_shared_ids() -> bool {
    ["uid_map", "gid_map"].iter().all(|file| {
        let map = fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
        ranges(&map).any(|(inside, _, count)| {
            inside <= u64::from(SHARED.0) && inside + count >= u64::from(SHARED.0 + RANGE)
        })
    })
}

/// Who root of this process's user namespace is around it.
pub fn user() -> Option<u64> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    ranges(&map).find(|range| range.0 == 0).map(|range| range.1)
}

/// The lines of a map: first id inside, first id outside, count.
fn ranges(map: &str) -> impl Iterator<Item = (u64, u64, u64)> {
    map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}

/// What keeps a user from serving, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found}; {remedy}")]
pub struct Obstacle {
    pub found: String,
    pub remedy: String,
}

impl Obstacle {
    fn new(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { found: found.into(), remedy: remedy.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_all_ids_is_root_of_the_host() {
        assert_eq!(Rights::of_map("         0          0 4294967295\n"), Rights::Root);
        assert_eq!(Rights::of_map("0 1000 1\n1 100000 65536\n"), Rights::User);
        assert_eq!(Rights::of_map("0 100000 65536\n"), Rights::User);
        assert_eq!(Rights::of_map(""), Rights::User);
    }
}
