//! What building images asks of a runtime.

use std::{any::Any, fmt, os::fd::OwnedFd, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use osb_api::SandboxId;

use crate::RuntimeError;

/// The power to build images in sandboxes: to show them files that are on no disk, and to have what
/// they wrote.
#[async_trait]
pub trait Builds: Send + Sync {
    /// Shows these files to the sandbox with this id once it is made, if the caller still holds them
    /// then. Nobody can write to them, and they are gone with the sandbox.
    fn lend(&self, id: SandboxId, files: &Arc<Vec<LentFile>>);

    /// Ends everything that runs in a sandbox, and hands over what it wrote. It is there until it is
    /// removed, which waits until what was handed over is dropped.
    async fn take(&self, id: SandboxId) -> Result<Written, RuntimeError>;
}

/// A file in memory.
#[derive(Clone)]
pub struct LentFile {
    /// Where it is shown: an absolute path without `..` and links.
    pub at: PathBuf,
    pub content: Arc<dyn AsRef<[u8]> + Send + Sync>,
    pub mode: u32,
    /// As they are inside.
    pub user: u32,
    pub group: u32,
}

impl fmt::Debug for LentFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentFile").field("at", &self.at).finish_non_exhaustive()
    }
}

/// What a sandbox wrote that has ended.
#[derive(Debug)]
pub struct Written {
    /// The directory of an overlay that took what was written, with its marks.
    pub files: OwnedFd,
    /// What the owners of the files are counted from.
    pub owners: u32,
    /// How many of its processes the kernel ended for lack of memory.
    pub oom_kills: u64,
    /// Whatever has to be held for the directory to stay.
    pub hold: Box<dyn Any + Send + Sync>,
}
