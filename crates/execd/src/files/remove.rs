use axum::response::Response;
use http::Uri;
use osb_sys::{
    fs::{self, PathError},
    tree,
};
use rustix::{
    fs::{CWD, FileType, Statx},
    io::Errno,
};
use std::path::{Path, PathBuf};

use super::{
    scope::{Scope, is_nameless},
    walk,
};
use crate::{error::ApiError, reply, request::Parameters};

/// `DELETE /files`: removes each path, links themselves and not what they point to. What is not
/// there is removed already; directories are not files.
pub(super) async fn remove_files(scope: Scope, uri: Uri) -> Result<Response, ApiError> {
    each(scope, &uri, |path| {
        if found(path)?.is_some_and(|status| walk::kind(&status) == FileType::Directory) {
            return Err(refused(path, "it is a directory"));
        }
        Ok(fs::remove_file(path)?)
    })
    .await
}

/// `DELETE /directories`: removes each path and all below it, whatever it is. What is not there is
/// removed already; the root stays.
pub(super) async fn remove_directories(scope: Scope, uri: Uri) -> Result<Response, ApiError> {
    each(scope, &uri, |path| {
        let Some(status) = found(path)? else { return Ok(()) };
        if walk::kind(&status) != FileType::Directory {
            return Ok(fs::remove_file(path)?);
        }
        let root = found(Path::new("/"))?;
        let identity =
            |status: &Statx| (status.stx_dev_major, status.stx_dev_minor, status.stx_ino);
        if root.is_some_and(|root| identity(&root) == identity(&status)) {
            return Err(refused(path, "it is the root of the file system"));
        }
        Ok(tree::remove(path)?)
    })
    .await
}

async fn each(
    scope: Scope,
    uri: &Uri,
    remove: impl Fn(&Path) -> Result<(), ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let parameters = Parameters::of(uri)?;
    let paths = parameters.all("path").map(|path| scope.path(path));
    let paths = paths.collect::<Result<Vec<PathBuf>, ApiError>>()?;
    scope
        .run(move || {
            for path in paths {
                // What ends in `..` has no name to remove; its real path has.
                let real = if is_nameless(&path) { path.canonicalize().ok() } else { None };
                remove(real.as_deref().unwrap_or(&path))?;
            }
            Ok(())
        })
        .await?;
    Ok(reply::empty())
}

fn found(path: &Path) -> Result<Option<Statx>, PathError> {
    match walk::status(CWD, path) {
        Ok(status) => Ok(Some(status)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(PathError::new("look at", path, error.into())),
    }
}

fn refused(path: &Path, reason: &str) -> ApiError {
    ApiError::refused(format!("cannot remove {}: {reason}", path.display()))
}
