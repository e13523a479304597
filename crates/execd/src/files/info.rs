use std::{
    collections::BTreeMap,
    fs::{FileType, Metadata},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
};

use axum::{extract::State, response::Response};
use http::Uri;
use jiff::Timestamp;
use osb_api::execd::{FileInfo, FileKind, Mode};
use osb_sys::fs::PathError;

use super::blocking;
use crate::{accounts::Accounts, daemon::Daemon, error::ApiError, reply, request::Parameters};

/// `GET /files/info`: what is known of each path, under the path as it was asked for.
pub(crate) async fn info(
    State(daemon): State<Arc<Daemon>>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&uri)?;
    let asked: Vec<_> = parameters
        .all("path")
        .map(|path| (path.to_owned(), daemon.environment.path(path)))
        .collect();
    let infos = blocking(move || {
        let accounts = Accounts::load();
        let infos = asked.into_iter().map(|(given, path)| Ok((given, stat(&path, &accounts)?)));
        infos.collect::<Result<BTreeMap<_, _>, ApiError>>()
    });
    Ok(reply::json(&infos.await?))
}

fn stat(path: &Path, accounts: &Accounts) -> Result<FileInfo, PathError> {
    let metadata =
        path.symlink_metadata().map_err(|source| PathError::new("look at", path, source))?;
    Ok(FileInfo {
        path: path.to_string_lossy().into_owned(),
        kind: Some(kind(metadata.file_type())),
        size: metadata.len(),
        modified_at: time(metadata.mtime(), metadata.mtime_nsec()),
        created_at: created(&metadata),
        owner: accounts.user_name(metadata.uid()),
        group: accounts.group_name(metadata.gid()),
        mode: Mode::from_bits(metadata.mode()),
    })
}

fn kind(file_type: FileType) -> FileKind {
    if file_type.is_file() {
        FileKind::File
    } else if file_type.is_dir() {
        FileKind::Directory
    } else if file_type.is_symlink() {
        FileKind::Symlink
    } else {
        FileKind::Other
    }
}

/// The file's birth, or its last change of any kind where the file system does not keep that.
fn created(metadata: &Metadata) -> Timestamp {
    let birth = metadata.created().ok().and_then(|birth| Timestamp::try_from(birth).ok());
    birth.unwrap_or_else(|| time(metadata.ctime(), metadata.ctime_nsec()))
}

fn time(seconds: i64, nanoseconds: i64) -> Timestamp {
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or(0);
    Timestamp::new(seconds, nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
