use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::Uri;
use osb_sys::fs;

use super::blocking;
use crate::{daemon::Daemon, error::ApiError, reply, request::Parameters};

/// `DELETE /files`: removes each path, links themselves and not what they point to. What is not
/// there is removed already; directories are not files.
pub(crate) async fn remove(
    State(daemon): State<Arc<Daemon>>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&uri)?;
    let paths: Vec<_> = parameters.all("path").map(|path| daemon.environment.path(path)).collect();
    blocking(move || {
        for path in paths {
            if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                let message = format!("cannot remove {}: it is a directory", path.display());
                return Err(ApiError::refused(message));
            }
            fs::remove_file(&path)?;
        }
        Ok(())
    })
    .await?;
    Ok(reply::empty())
}
