//! File operations whose errors name the path.
#![expect(clippy::disallowed_methods, reason = "this module is what the rest of the code calls")]

use std::{
    io,
    path::{Path, PathBuf},
};

/// An operation on a path that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}", path.display())]
pub struct PathError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl PathError {
    pub fn new(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self { doing, path: path.into(), source }
    }

    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    pub fn io(&self) -> &io::Error {
        &self.source
    }
}

fn named<T>(doing: &'static str, path: &Path, result: io::Result<T>) -> Result<T, PathError> {
    result.map_err(|source| PathError::new(doing, path, source))
}

pub fn read(path: impl AsRef<Path>) -> Result<Vec<u8>, PathError> {
    named("read", path.as_ref(), std::fs::read(path.as_ref()))
}

pub fn read_to_string(path: impl AsRef<Path>) -> Result<String, PathError> {
    named("read", path.as_ref(), std::fs::read_to_string(path.as_ref()))
}

pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<(), PathError> {
    named("write", path.as_ref(), std::fs::write(path.as_ref(), content))
}

/// Makes the directory and its parents; one that exists is success.
pub fn create_dir_all(path: impl AsRef<Path>) -> Result<(), PathError> {
    named("create directory", path.as_ref(), std::fs::create_dir_all(path.as_ref()))
}

/// Removes a file. Absence is success.
pub fn remove_file(path: impl AsRef<Path>) -> Result<(), PathError> {
    absent_ok("remove", path.as_ref(), std::fs::remove_file(path.as_ref()))
}

/// Removes a directory and all below it, never following links. Absence is success.
pub fn remove_dir_all(path: impl AsRef<Path>) -> Result<(), PathError> {
    absent_ok("remove directory", path.as_ref(), std::fs::remove_dir_all(path.as_ref()))
}

fn absent_ok(doing: &'static str, path: &Path, result: io::Result<()>) -> Result<(), PathError> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => named(doing, path, result),
    }
}
