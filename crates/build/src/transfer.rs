//! `COPY` and `ADD`: from files somewhere to a layer of the image.
//!
//! ```text
//!  patterns ──pick──► files and directories ──┬─walk──► key
//!                                             └─walk──► layer
//! ```
//!
//! Both the files and the image are somebody else's: links lead nowhere but within them.

mod archive;
mod digest;
mod pick;
mod walk;
mod write;

use std::{
    io,
    path::{Path, PathBuf},
};

use osb_image::Stack;

pub(crate) use self::{
    digest::digest,
    pick::Picked,
    write::{Layering, empty_directory},
};
use crate::{asker::Asker, ignore::Ignore, problem::Fault};

/// How many files and directories one instruction may copy.
const MOST_ENTRIES: usize = 2_000_000;
/// How deep directories may lie, which is as deep as in images.
const DEEPEST: usize = 128;

/// Why files were not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    /// Whoever wrote the Dockerfile, or the files, has to do something.
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write the layer")]
    Write(#[source] io::Error),
}

/// Says what could not be read.
fn read<T>(path: &Path, result: io::Result<T>) -> Result<T, TransferError> {
    result.map_err(|source| TransferError::Read { path: path.to_owned(), source })
}

/// Where files are taken from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Files<'a> {
    pub(crate) stack: &'a Stack,
    /// What is not part of it.
    pub(crate) ignore: &'a Ignore,
    pub(crate) owners: Owners,
    /// How it is called in errors.
    pub(crate) name: &'a str,
    /// Who wants them.
    pub(crate) asker: &'a Asker,
}

/// Whom files belong to where nobody says anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owners {
    /// Root: whoever had them on his machine is nobody here.
    Root,
    /// Those that they have in another image.
    Kept,
}

#[cfg(test)]
mod tests;
