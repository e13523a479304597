//! Files of a session, as it sees them.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State},
    response::Response,
};
use http::{Request, Uri, uri::PathAndQuery};
use serde::Deserialize;

use super::run;
use crate::{daemon::Daemon, error::ApiError};

#[derive(Debug, Deserialize)]
pub(super) struct Which {
    id: String,
}

/// Any of the file routes, answered by the session's execd.
pub(super) async fn forward(
    State(daemon): State<Arc<Daemon>>,
    Path(Which { id }): Path<Which>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let session = daemon.isolation.get(&id)?;
    let (mut parts, body) = request.into_parts();
    parts.uri = inner(&parts.uri, &id).ok_or_else(|| ApiError::no_route(parts.uri.path()))?;
    let busy = session.use_now()?;
    let answer = session.ask(&daemon, Request::from_parts(parts, body)).await?;
    Ok(run::pass_on(answer, busy))
}

/// The route of the session's execd for a route of the session.
fn inner(uri: &Uri, id: &str) -> Option<Uri> {
    let rest = uri.path().strip_prefix("/v1/isolated/session/")?.strip_prefix(id)?;
    let query = uri.query();
    // Published clients want to know how often something was replaced and forget to say so.
    let route = match (rest, query) {
        ("/files/replace", _) => "/files/replace?verbose=true".to_owned(),
        (_, Some(query)) => format!("{rest}?{query}"),
        (_, None) => rest.to_owned(),
    };
    PathAndQuery::try_from(route).ok().map(Uri::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_of_a_session_is_that_of_its_execd() {
        let check = |given: &'static str, expected: Option<&str>| {
            let found = inner(&Uri::from_static(given), "x");
            assert_eq!(found.map(|uri| uri.to_string()).as_deref(), expected, "{given}");
        };
        check("/v1/isolated/session/x/files/info?path=%2Fa", Some("/files/info?path=%2Fa"));
        check("/v1/isolated/session/x/files", Some("/files"));
        check("/v1/isolated/session/x/directories/list?path=a", Some("/directories/list?path=a"));
        check("/v1/isolated/session/x/files/replace", Some("/files/replace?verbose=true"));
        check("/v1/isolated/session/y/files", None);
    }
}
