//! Clearing away what a crash left, without a server.

use std::{io, time::Duration};

use osb_core::Runtime as _;
use osb_sys::{cgroup::Layout, fs::PathError, tree};

use crate::{Config, Native, StartError, Traces, traces::Count};

/// How long the kernel may take to give back what ended sandboxes had: it does so behind everybody's
/// back, and tells nobody when.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// What a look at the traces found in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed {
    pub removed: Count,
    /// What should have gone and did not.
    pub stuck: Count,
}

impl Native {
    /// Waits until nothing is left but the sandboxes that are known, and counts what has gone
    /// since `before`. This runtime must not be used any more.
    pub async fn settle(&self, before: &Traces) -> Result<Fixed, PathError> {
        self.deleted().await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let (after, stuck) = loop {
            let after = Traces::find(self.config())?;
            let stuck = after.count_without(&self.own(&after));
            if stuck.is_nothing() || tokio::time::Instant::now() > deadline {
                break (after, stuck);
            }
            tokio::time::sleep(LOOK).await;
        };
        self.retire().await;
        Ok(Fixed { removed: before.count_without(&after), stuck })
    }
}

/// Removes what a trial left that ended before it could: its directory `config.data_dir`, and
/// whatever is in it and in its control group. `None` if it goes on.
pub async fn end_trial(config: Config, execd: &[u8]) -> Result<Option<Count>, StartError> {
    let (directory, parent) = (config.data_dir.clone(), config.cgroup_parent.clone());
    let before = Traces::find(&config).map_err(StartError::Data)?;
    let native = match Native::start(config, execd).await {
        Err(StartError::InUse(_)) => return Ok(None),
        result => result?,
    };
    let failed = |error| StartError::Trial(io::Error::other(error));
    for seen in native.list().await.map_err(failed)? {
        native.remove(seen.id).await.map_err(failed)?;
    }
    let fixed = native.settle(&before).await.map_err(StartError::Data)?;
    tree::remove(&directory).map_err(StartError::Data)?;
    dissolve(&parent);
    let itself = Count { directories: 1, ..Count::default() };
    Ok(Some(fixed.removed + itself))
}

/// The control groups whose names begin with `prefix`, at the root of what may be used of the tree.
pub fn groups(prefix: &str) -> Vec<String> {
    let names = Layout::usable().ok().and_then(|layout| layout.names("").ok());
    names.unwrap_or_default().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

/// Removes the control group, and those below it, unless anything is in them. Whether it is gone.
pub fn dissolve(parent: &str) -> bool {
    Layout::usable().is_ok_and(|layout| {
        layout.dissolve(parent);
        !layout.group(parent, "").exists()
    })
}
