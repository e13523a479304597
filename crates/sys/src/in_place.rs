//! Short work that a disk might hold up.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does it on this thread, while another takes over whatever else this one has to do. For work that
/// takes less time than another thread needs to begin with it.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
