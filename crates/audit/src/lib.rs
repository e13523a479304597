//! What sandboxes did, written down so that a change of it is seen.
//!
//! Every sandbox has a book: a directory of files with one JSON object a line. Each line ends with a
//! hash of itself and of the line before, so that a line that is changed, left out or put in breaks
//! the chain from there on ([`read`]). Whoever has something to write down never waits for the disk:
//! one thread writes for everybody ([`Audit`]). Nobody fills it: each sandbox has so many lines a
//! second of everything that it does, what is beyond that is counted in a line of its own, and when
//! there is too much, the largest books lose their oldest files.

mod audit;
mod book;
mod chain;
mod desk;
mod keep;
mod read;
mod share;
mod writer;

pub use audit::{Audit, Counts, Entry};
pub use keep::Keep;
pub use read::{Fault, Verified, books, read};
