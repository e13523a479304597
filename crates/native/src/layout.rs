//! Which control groups hold the sandboxes.

use std::{io, path::Path};

use osb_sys::{cgroup::Layout, fs, rootless::Rights};

/// In the data directory: which groups a server that is not root has used. The next one may be
/// started in another place, and its sandboxes are still there.
const RECORD: &str = "groups.json";

/// The groups that this process uses for the sandboxes of this data directory.
pub(crate) fn find(rights: Rights, data_dir: &Path) -> io::Result<Layout> {
    if rights == Rights::Root {
        return Layout::find();
    }
    let used = fs::read(data_dir.join(RECORD)).ok();
    let used = used.and_then(|text| serde_json::from_slice::<Layout>(&text).ok());
    match used.filter(|layout| layout.settle().is_ok()) {
        Some(layout) => Ok(layout),
        None => Layout::usable(),
    }
}

/// The same, for a server: the next one finds them again.
pub(crate) fn take(rights: Rights, data_dir: &Path) -> io::Result<Layout> {
    let layout = find(rights, data_dir)?;
    if layout == Layout::None {
        tracing::warn!(
            "no control groups: processor and memory of sandboxes are not limited, and no sandbox \
             can be paused or kept; osb doctor says what to do"
        );
    } else if rights == Rights::User {
        let text = serde_json::to_vec(&layout)?;
        fs::write_whole(data_dir.join(RECORD), &text, 0o600).map_err(io::Error::other)?;
    }
    Ok(layout)
}
