//! `osb doctor --fix`: removing what a crash left.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use osb_core::{Runtime as _, SystemClock};
use osb_native::{Count, Fixed, Native, StartError, Traces};

use crate::{
    failure::Failure,
    output::Output,
    runtime::{self, GROUP, TRIAL, TRIAL_GROUP},
};

pub(super) async fn main(data_dir: &Path, output: &mut Output<'_>) -> Result<u8, Failure> {
    let elsewhere = osb_native::clear_forsaken(GROUP).await? + end_trials(data_dir).await?;
    let fixed = match fix(data_dir, output).await? {
        Found::Idle(fixed) => fixed,
        Found::Nothing => Fixed { removed: Count::default(), stuck: Count::default() },
        Found::Server => {
            output.say(&format!(
                "a server uses {}: it has removed what crashes left when it started, and tries \
                 again what it could not when it starts anew",
                data_dir.display()
            ));
            Fixed { removed: Count::default(), stuck: Count::default() }
        }
    };
    let removed = fixed.removed + elsewhere;
    output.line(&if removed.is_nothing() {
        "nothing to remove".to_owned()
    } else {
        format!("removed {removed}")
    })?;
    if fixed.stuck.is_nothing() {
        return Ok(0);
    }
    output.say(&format!("could not remove {}: something holds it", fixed.stuck));
    Ok(1)
}

/// Who has the data directory.
enum Found {
    /// Nobody has ever used it.
    Nothing,
    Server,
    Idle(Fixed),
}

async fn fix(data_dir: &Path, output: &mut Output<'_>) -> Result<Found, Failure> {
    let config = runtime::config_below(data_dir);
    if !config.data_dir.is_dir() {
        return Ok(Found::Nothing);
    }
    let before = Traces::find(&config)?;
    // As a server does: the runtime clears away what was half made, the store tells what is wanted.
    let native = match Native::start(config, osb_bundle::EXECD).await {
        Err(StartError::InUse(_)) => return Ok(Found::Server),
        started => started.map_err(|source| failed(source.into()))?,
    };
    match osb_server::remove_unwanted(data_dir, &*native, &SystemClock).await {
        Err(osb_server::StartError::InUse(_)) => return Ok(Found::Server),
        Err(error) => return Err(failed(error.into())),
        Ok(osb_server::Wanted::Known) => {}
        Ok(osb_server::Wanted::Unknown) => {
            let there = native.list().await.map_err(|error| failed(error.into()))?;
            if !there.is_empty() {
                let count = there.len();
                output.say(&format!("no database says which sandboxes are wanted: {count} stay"));
            }
        }
    }
    Ok(Found::Idle(native.settle(&before).await?))
}

/// Removes what trials of `osb doctor` left that were killed.
async fn end_trials(data_dir: &Path) -> Result<Count, Failure> {
    let mut count = Count::default();
    for place in data_dir.ancestors() {
        // Absent ones are empty, and others are not ours to look into.
        for name in osb_sys::fs::names(place).unwrap_or_default() {
            let Some(pid) = name.strip_prefix(TRIAL) else { continue };
            if is_running(pid) || !is_ours(&place.join(&name)) {
                continue;
            }
            let config = runtime::trial_config(place, pid);
            let ended = osb_native::end_trial(config, osb_bundle::EXECD).await;
            count = count + ended.map_err(|source| failed(source.into()))?.unwrap_or_default();
        }
    }
    for name in osb_native::groups(TRIAL_GROUP) {
        let is_over = name.strip_prefix(TRIAL_GROUP).is_some_and(|pid| !is_running(pid));
        if is_over && osb_native::dissolve(&name) {
            count.groups += 1;
        }
    }
    Ok(count)
}

/// Whether this may be a process that runs, or is not the number of one at all.
fn is_running(pid: &str) -> bool {
    pid.parse::<u32>().is_err() || Path::new("/proc").join(pid).exists()
}

/// Whether nobody else can have made this directory or written to it: a trial may have been in a
/// place where everybody may make directories, and what is in it is believed.
fn is_ours(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| {
        found.is_dir()
            && found.uid() == rustix::process::geteuid().as_raw()
            && found.mode() & 0o777 == 0o700
    })
}

fn failed(source: Box<dyn std::error::Error + Send + Sync>) -> Failure {
    Failure::Machine { doing: "cannot remove what a crash left", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_surely_over_is_not_running() {
        assert!(is_running(&std::process::id().to_string()));
        assert!(is_running("x") && is_running("") && is_running("../1"));
        assert!(!is_running(&u32::MAX.to_string()));
    }

    #[test]
    fn directories_that_others_can_write_to_are_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let (own, link) = (dir.path().join("own"), dir.path().join("link"));
        osb_sys::fs::create_dir(&own, 0o700).unwrap();
        osb_sys::fs::symlink(&own, &link).unwrap();
        assert!(is_ours(&own) && !is_ours(&link));
        osb_sys::fs::set_mode(&own, 0o770).unwrap();
        assert!(!is_ours(&own));
    }
}
