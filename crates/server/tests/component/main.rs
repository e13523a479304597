//! The whole server on a port of its own, with a runtime in memory and a real database.

#![expect(clippy::indexing_slicing, reason = "a key that an answer lacks should fail the test")]

mod builds;
mod diagnostics;
mod edges;
mod endpoints;
mod harness;
mod idle;
mod images;
mod ingress;
mod life;
mod list;
mod outcomes;
mod policies;
mod pulls;
mod refusals;
mod reload;
mod restart;
mod shelf;
mod smuggling;
mod snapshots;
mod templates;
mod tls;
mod unwanted;
mod vaults;
mod volumes;
