//! The client with a real registry, and with servers that mean no good.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod auth;
mod guard;
mod hostile;
mod image;
mod mirror;
mod push;
mod resume;
mod roundtrip;
mod stranger;
