use std::collections::BTreeMap;

use axum::response::Response;
use http::Uri;
use osb_sys::fs::PathError;
use rustix::fs::CWD;

use super::{scope::Scope, status, walk};
use crate::{accounts, error::ApiError, reply, request::Parameters};

/// `GET /files/info`: what is known of each path, under the path as it was asked for.
pub(super) async fn info(scope: Scope, uri: Uri) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&uri)?;
    let asked = parameters.all("path").map(|path| Ok((path.to_owned(), scope.path(path)?)));
    let asked = asked.collect::<Result<Vec<_>, ApiError>>()?;
    let infos = scope.run(move || {
        let accounts = accounts::load();
        let infos = asked.into_iter().map(|(given, path)| {
            let found = walk::status(CWD, &path)
                .map_err(|error| PathError::new("look at", &path, error.into()))?;
            Ok((given, status::describe(&path, &found, &accounts)))
        });
        infos.collect::<Result<BTreeMap<_, _>, ApiError>>()
    });
    Ok(reply::json(&infos.await?))
}
