//! The static execd as bytes, built by this crate's build script.
