//! Rust SDK for OpenSandbox: one client per API.
