//! Running this runtime without being root.

use std::path::Path;

use osb_sys::{
    fork::SingleThread,
    fs,
    process::Trace,
    rootless::{self, Obstacle},
};

use crate::sandbox::alive;

/// Makes this process root of a user namespace unless it is root already: of that in which the
/// sandboxes of this data directory live, if some do, for there only it has power over them.
///
/// To be called before the process has any other thread.
pub fn become_root(data_dir: &Path) -> Result<(), Obstacle> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let failed = |found: String| Obstacle { found, remedy: "see the error".to_owned() };
    let alone = SingleThread::prove().map_err(|error| failed(error.to_string()))?;
    for process in first_processes(data_dir) {
        if process.find().is_none() {
            continue;
        }
        match rootless::join(&alone, process.pid()) {
            Ok(()) => return Ok(()),
            Err(error) if process.find().is_some() => {
                return Err(failed(format!("cannot take over the running sandboxes: {error}")));
            }
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
    rootless::enter(&alone)
}

/// The first processes of all sandboxes, those included that have ended.
fn first_processes(data_dir: &Path) -> impl Iterator<Item = Trace> {
    ["sandboxes", "pool"].into_iter().flat_map(|part| {
        let part = data_dir.join(part);
        let names = fs::names(&part).unwrap_or_default().into_iter();
        names.filter_map(move |name| alive::trace(&part.join(name)))
    })
}
