use std::path::{Path, PathBuf};

use axum::{body::Body, response::Response};
use osb_api::execd::Rename;
use osb_sys::{
    fs::{self, PathError},
    tree,
};
use rustix::{
    fs::{CWD, FileType, RenameFlags, renameat_with},
    io::Errno,
};
use uuid::Uuid;

use super::{copy, scope::Scope, walk};
use crate::{error::ApiError, reply, request};

/// `POST /files/mv`: moves each file or directory to a place that is free, also to another file
/// system. Directories on the way are made.
pub(super) async fn rename(scope: Scope, body: Body) -> Result<Response, ApiError> {
    let moves: Option<Vec<Rename>> = request::json(body).await?;
    let moves = moves.unwrap_or_default().into_iter();
    let moves = moves.map(|Rename { src, dest }| Ok((scope.path(&src)?, scope.path(&dest)?)));
    let moves = moves.collect::<Result<Vec<(PathBuf, PathBuf)>, ApiError>>()?;
    scope
        .run(move || {
            for (from, to) in moves {
                move_one(&from, &to)?;
            }
            Ok(())
        })
        .await?;
    Ok(reply::empty())
}

fn move_one(from: &Path, to: &Path) -> Result<(), ApiError> {
    walk::status(CWD, from).map_err(|error| PathError::new("look at", from, error.into()))?;
    if walk::status(CWD, to).is_ok() {
        return Err(occupied(to));
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    match put(from, to) {
        Ok(()) => Ok(()),
        Err(Errno::XDEV) => move_far(from, to),
        Err(Errno::EXIST) => Err(occupied(to)),
        Err(error) => Err(PathError::new("move", from, error.into()).into()),
    }
}

/// Renames to a name that is free.
fn put(from: &Path, to: &Path) -> Result<(), Errno> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems do not know how to make sure; it was free a moment ago.
        Err(Errno::INVAL | Errno::NOSYS) => renameat_with(CWD, from, CWD, to, RenameFlags::empty()),
        result => result,
    }
}

/// Moves to another file system: a copy grows beside the target and takes its place once it is
/// whole, and only then is the original removed.
fn move_far(from: &Path, to: &Path) -> Result<(), ApiError> {
    let parent = to.parent().unwrap_or_else(|| Path::new("/"));
    let growing = parent.join(format!(".move-{}", Uuid::new_v4().simple()));
    let copied = copy::copy(from, &growing).map_err(ApiError::from).and_then(|()| {
        put(&growing, to).map_err(|error| match error {
            Errno::EXIST => occupied(to),
            error => PathError::new("move", from, error.into()).into(),
        })
    });
    if copied.is_err() {
        // The reason why it failed is what matters.
        drop(remove(&growing));
        return copied;
    }
    Ok(remove(from)?)
}

fn remove(path: &Path) -> Result<(), PathError> {
    match walk::status(CWD, path) {
        Ok(status) if walk::kind(&status) == FileType::Directory => tree::remove(path),
        _ => fs::remove_file(path),
    }
}

fn occupied(path: &Path) -> ApiError {
    ApiError::refused(format!("cannot move to {}: it exists", path.display()))
}
