//! What the fuzz targets in `fuzz/` reach of the parsers: thin functions over plain values, so that
//! the parsers themselves can stay private.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{env, env_file, environment::Environment, expand};

pub use crate::{
    code::fuzz::{Said, kernel, packed},
    files::fuzz::{Part, form, line_range, pattern, range},
    output::fuzz::lines,
    websocket::fuzz::{Frame, frames},
};

/// The assignments of an environment file in which only `BASE` has a value.
pub fn env_file(text: &str) -> BTreeMap<String, String> {
    env_file::parse(text, base)
}

/// A text with its variables replaced, of which only `BASE` has a value.
pub fn variables(text: &str) -> String {
    expand::variables(text, base)
}

/// What a caller means by a path, where `BASE` is `/base`, the home `/home/me` and the working
/// directory `/work`.
pub fn path(given: &str) -> PathBuf {
    let variables = [("BASE", "/base"), (env::HOME, "/home/me")];
    let variables = variables.map(|(name, value)| (name.into(), value.into()));
    Environment::new(variables.into(), "/work".into()).path(given)
}

fn base(name: &str) -> Option<String> {
    (name == "BASE").then(|| "/base".to_owned())
}
