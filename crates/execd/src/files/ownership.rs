use std::{
    collections::BTreeMap,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use axum::{body::Body, response::Response};
use osb_api::execd::{Mode, Ownership};
use osb_core::Accounts;
use osb_sys::fs::{self, PathError};
use rustix::{
    fs::{AtFlags, CWD, Gid, OFlags, Uid, chownat, openat},
    io::Errno,
};

use super::scope::Scope;
use crate::{accounts, error::ApiError, reply, request};

/// Whose a file shall be; what is absent stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: Option<Uid>,
    pub(super) gid: Option<Gid>,
}

impl Owner {
    /// Finds the numbers. An empty name is none.
    pub(super) fn find(
        accounts: &Accounts,
        owner: Option<&str>,
        group: Option<&str>,
    ) -> Result<Self, String> {
        let given = |name: Option<&str>| name.filter(|name| !name.is_empty()).map(str::to_owned);
        let unknown = |kind, name: &str| format!("there is no {kind} {name:?} in the sandbox");
        let uid =
            given(owner).map(|name| accounts.uid(&name).ok_or_else(|| unknown("user", &name)));
        let gid =
            given(group).map(|name| accounts.gid(&name).ok_or_else(|| unknown("group", &name)));
        Ok(Self {
            uid: uid.transpose()?.map(Uid::from_raw),
            gid: gid.transpose()?.map(Gid::from_raw),
        })
    }

    pub(super) fn is_given(self) -> bool {
        self != Self::default()
    }

    /// Gives an open file, or one that is only found, to this owner.
    pub(super) fn give(self, file: impl AsFd) -> Result<(), Errno> {
        if !self.is_given() {
            return Ok(());
        }
        chownat(file, c"", self.uid, self.gid, AtFlags::EMPTY_PATH)
    }
}

/// `POST /files/permissions`: the mode and the owner of what is there, links followed.
pub(super) async fn permissions(scope: Scope, body: Body) -> Result<Response, ApiError> {
    let wanted = paths(&scope, body).await?;
    scope
        .run(move || {
            let wanted = owners(wanted)?;
            for (path, mode, owner) in &wanted {
                let found = find(path, OFlags::empty())?;
                set(path, &found, *mode, *owner)?;
            }
            Ok(())
        })
        .await?;
    Ok(reply::empty())
}

/// `POST /directories`: each directory and those on the way to it. Only what is new gets the mode
/// and the owner.
pub(super) async fn create_directories(scope: Scope, body: Body) -> Result<Response, ApiError> {
    let wanted = paths(&scope, body).await?;
    scope
        .run(move || {
            let wanted = owners(wanted)?;
            for (path, mode, owner) in &wanted {
                if is_made(path)? && (mode.is_some() || owner.is_given()) {
                    let found = find(path, OFlags::NOFOLLOW | OFlags::DIRECTORY)?;
                    set(path, &found, *mode, *owner)?;
                }
            }
            Ok(())
        })
        .await?;
    Ok(reply::empty())
}

async fn paths(scope: &Scope, body: Body) -> Result<Vec<(PathBuf, Ownership)>, ApiError> {
    let wanted: Option<BTreeMap<String, Option<Ownership>>> = request::json(body).await?;
    let wanted = wanted.unwrap_or_default().into_iter();
    wanted.map(|(path, wanted)| Ok((scope.path(&path)?, wanted.unwrap_or_default()))).collect()
}

/// Finds all owners, before anything is changed.
fn owners(
    wanted: Vec<(PathBuf, Ownership)>,
) -> Result<Vec<(PathBuf, Option<Mode>, Owner)>, ApiError> {
    let accounts = accounts::load();
    let found = wanted.into_iter().map(|(path, wanted)| {
        let owner = Owner::find(&accounts, wanted.owner.as_deref(), wanted.group.as_deref());
        Ok((path, wanted.mode, owner.map_err(ApiError::refused)?))
    });
    found.collect()
}

/// Makes a directory, and says whether it was not there before.
fn is_made(path: &Path) -> Result<bool, PathError> {
    match fs::create_dir(path, 0o777) {
        Ok(()) => return Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {
            return Ok(false);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::create_dir(path, 0o777) {
        // Somebody else was quicker.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {
            Ok(false)
        }
        result => result.map(|()| true),
    }
}

/// Finds a file without opening it, so that its mode and its owner are set on the same one.
fn find(path: &Path, flags: OFlags) -> Result<OwnedFd, PathError> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC | flags, rustix::fs::Mode::empty())
        .map_err(|error| PathError::new("find", path, error.into()))
}

fn set(path: &Path, found: &OwnedFd, mode: Option<Mode>, owner: Owner) -> Result<(), PathError> {
    // First the owner: another owner takes away setuid and setgid.
    owner.give(found).map_err(|error| PathError::new("change the owner of", path, error.into()))?;
    let Some(mode) = mode else { return Ok(()) };
    match fs::set_mode(format!("/proc/self/fd/{}", found.as_raw_fd()), mode.bits()) {
        // Without a proc file system there is only the path itself.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::set_mode(path, mode.bits())
        }
        Err(error) => {
            let source = std::io::Error::from_raw_os_error(error.io().raw_os_error().unwrap_or(0));
            Err(PathError::new("change the mode of", path, source))
        }
        Ok(()) => Ok(()),
    }
}
