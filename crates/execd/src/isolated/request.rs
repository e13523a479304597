//! What a caller asks of a new session, checked and put into the isolator's words.

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use osb_api::execd::{
    CreateIsolated, IsolatedBind, IsolatedOverlay, IsolatedProfile, WorkspaceMode,
};
use osb_core::{Token, agent::Boot};
use osb_sys::identity::Identity;
use uuid::Uuid;

use super::environment;
use crate::{
    accounts,
    daemon::Daemon,
    env,
    error::ApiError,
    isolator::{Mode, Network, Open, Place, Tmp},
};

/// The most overlays, and of everything else that is a list of paths.
const PATHS: usize = 16;
const KEYS: usize = 256;
/// How long a session may be idle that says nothing about it.
const IDLE: Duration = Duration::from_mins(30);

/// A session that may be made.
#[derive(Debug)]
pub(super) struct Order {
    /// What was asked for, with the defaults filled in.
    pub(super) request: CreateIsolated,
    pub(super) open: Open,
    pub(super) boot: Boot,
    pub(super) idle: Option<Duration>,
}

/// Checks a request. This looks at files, so it is for a thread that may wait.
pub(super) fn validate(daemon: &Daemon, asked: CreateIsolated) -> Result<Order, ApiError> {
    let mut request = asked;
    let profile = *request.profile.get_or_insert(IsolatedProfile::Strict);
    let share_net = *request.share_net.get_or_insert(true);
    let idle = *request.idle_timeout_seconds.get_or_insert(IDLE.as_secs());
    let overlays = overlays(&mut request)?;
    let workdir = overlays.first().map(|place| place.target.clone()).unwrap_or_default();
    let mut places = overlays;
    for path in list("extra_writable", &request.extra_writable)? {
        let path = clean("extra_writable", path)?;
        places.push(Place { source: path.clone(), target: path, mode: Mode::Writable });
    }
    for IsolatedBind { source, dest, readonly } in list("binds", &request.binds)? {
        let target = clean("dest", dest.as_ref().unwrap_or(source))?;
        let readonly = readonly.unwrap_or(false);
        let mode = if readonly { Mode::ReadOnly } else { Mode::Writable };
        places.push(Place { source: clean("source", source)?, target, mode });
    }
    // What lies deeper covers what it lies in, whatever the order in which it was asked for.
    places.sort_by_key(|place| place.target.components().count());
    if let Some(passthrough) = &request.env_passthrough
        && passthrough.keys.len() > KEYS
    {
        return Err(ApiError::invalid(format!("`env_passthrough` names more than {KEYS} keys")));
    }
    let identity = identity(daemon, request.uid, request.gid)?;
    Ok(Order {
        open: Open {
            places,
            tmp: match profile {
                IsolatedProfile::Strict => Tmp::Private,
                IsolatedProfile::Balanced => Tmp::Shared,
            },
            network: if share_net { Network::Shared } else { Network::None },
            identity,
        },
        boot: boot(daemon, profile, &request, &workdir),
        idle: (idle > 0).then(|| Duration::from_secs(idle)),
        request,
    })
}

/// The workspace and then the overlays.
fn overlays(request: &mut CreateIsolated) -> Result<Vec<Place>, ApiError> {
    let mut asked: Vec<&mut IsolatedOverlay> = Vec::new();
    let mut first = request.workspace.as_mut().map(|workspace| IsolatedOverlay {
        path: workspace.path.clone(),
        mode: Some(*workspace.mode.get_or_insert(WorkspaceMode::Rw)),
        persist: None,
    });
    asked.extend(first.as_mut());
    asked.extend(request.overlays.iter_mut());
    if asked.is_empty() {
        return Err(ApiError::invalid("`workspace` or `overlays` is missing"));
    }
    if asked.len() > PATHS {
        return Err(ApiError::invalid(format!("more than {PATHS} overlays are not possible")));
    }
    let mut seen = BTreeSet::new();
    let mut places = Vec::new();
    for overlay in asked {
        let path = clean("path", &overlay.path)?;
        if !seen.insert(path.clone()) {
            return Err(ApiError::invalid(format!("{:?} is there twice", overlay.path)));
        }
        let mode = match (*overlay.mode.get_or_insert(WorkspaceMode::Overlay), overlay.persist) {
            (WorkspaceMode::Rw | WorkspaceMode::Ro, Some(_)) => {
                return Err(ApiError::invalid("`persist` needs the mode `overlay`"));
            }
            (WorkspaceMode::Rw, None) => Mode::Writable,
            (WorkspaceMode::Ro, None) => Mode::ReadOnly,
            (WorkspaceMode::Overlay, Some(true)) => Mode::KeptLayer,
            (WorkspaceMode::Overlay, _) => Mode::Layer,
        };
        places.push(Place { source: path.clone(), target: path, mode });
    }
    Ok(places)
}

fn list<'a, T>(name: &str, items: &'a [T]) -> Result<&'a [T], ApiError> {
    if items.len() > PATHS {
        return Err(ApiError::invalid(format!("`{name}` has more than {PATHS} elements")));
    }
    Ok(items)
}

/// A path as sessions take them: from the root, without detours, and not of the kernel's own file
/// systems, which every session has in its own way.
fn clean(field: &str, path: &str) -> Result<PathBuf, ApiError> {
    let wrong = |why: &str| ApiError::invalid(format!("`{field}` {path:?} {why}"));
    let given = Path::new(path);
    if !given.is_absolute() {
        return Err(wrong("is not an absolute path"));
    }
    let normal = given.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    let rebuilt: PathBuf = given.components().collect();
    // Comparing the text finds what comparing paths does not: `//`, `/./` and a slash at the end.
    if !normal || path.contains('\0') || rebuilt.as_os_str() != given.as_os_str() {
        return Err(wrong("is not a clean path"));
    }
    if path.len() > 4096 {
        return Err(wrong("is too long"));
    }
    if path == "/" || ["/dev", "/proc", "/sys"].iter().any(|own| given.starts_with(own)) {
        return Err(wrong("cannot be a place of its own in a session"));
    }
    Ok(rebuilt)
}

fn identity(
    daemon: &Daemon,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<Option<(u32, u32, Vec<u32>)>, ApiError> {
    // The highest number means "nobody in particular" to the kernel.
    if [uid, gid].contains(&Some(u32::MAX)) {
        return Err(ApiError::invalid("4294967295 is no user or group"));
    }
    let identity = match (uid, gid) {
        (None, None) => daemon.environment.identity(None),
        (None, Some(gid)) => Some(Identity { uid: 0, gid, groups: Vec::new() }),
        (Some(uid), gid) => Some(accounts::identity(uid, gid)),
    };
    Ok(identity.map(|Identity { uid, gid, groups }| (uid, gid, groups)))
}

fn boot(
    daemon: &Daemon,
    profile: IsolatedProfile,
    request: &CreateIsolated,
    workdir: &Path,
) -> Boot {
    let variables = daemon.environment.for_command(&std::collections::BTreeMap::new());
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let variables = variables.into_iter().filter_map(text).collect();
    let mut env = environment::passed(variables, profile, request.env_passthrough.as_ref());
    // Its assignments are among the variables already, as far as they may be.
    env.insert(env::ENV_FILE.to_owned(), String::new());
    Boot {
        token: Token::new(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())),
        entrypoint: Vec::new(),
        env,
        workdir: workdir.to_string_lossy().into_owned(),
        // Whoever makes the session makes it of that user.
        user: None,
        stop_signal: None,
        trust: None,
        counters: None,
        output: false,
        isolator: false,
        by_descriptor: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clean_paths_of_the_sandbox_are_taken() {
        for good in ["/work", "/a/b c/d", "/tmp/x", "/development", "/..a"] {
            assert_eq!(clean("path", good).unwrap(), Path::new(good));
        }
        for bad in [
            "",
            "work",
            "./work",
            "/",
            "//work",
            "/a//b",
            "/a/",
            "/a/./b",
            "/a/../b",
            "/..",
            "/a\0b",
            "/proc",
            "/proc/self",
            "/dev/shm",
            "/sys",
        ] {
            assert!(clean("path", bad).is_err(), "{bad:?}");
        }
    }
}
