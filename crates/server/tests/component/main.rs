//! The whole server on a port of its own, with a runtime in memory and a real database.

#![expect(clippy::indexing_slicing, reason = "a key that an answer lacks should fail the test")]

mod edges;
mod endpoints;
mod harness;
mod life;
mod list;
mod outcomes;
mod policies;
mod refusals;
mod restart;
mod snapshots;
mod unwanted;
mod vaults;
mod volumes;
