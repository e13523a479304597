//! The way into a sandbox. It asks for no API key: execd and `secureAccess` have their own tokens.

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::HeaderMap;
use osb_api::{codes, headers, ports};
use osb_core::Phase;
use osb_gateway::Route;
use subtle::ConstantTimeEq;

use super::{egress, endpoints};
use crate::{app::App, error::ApiError, extract::Id, place::SandboxPath, record::Record};

pub(super) async fn forward(
    State(app): State<App>,
    Id(id): Id,
    request: Request,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    let whole = request.uri().path_and_query().map_or(path, |whole| whole.as_str()).to_owned();
    let (port, below) =
        SandboxPath::parse(path).and_then(SandboxPath::proxied).ok_or_else(ApiError::no_route)?;
    let prefix_length = path.len() - below.len();
    let port = endpoints::port(port)?;
    let record = app.record(id)?;
    check_access(&record, request.headers())?;
    if port == ports::EGRESS {
        let below = below.to_owned();
        return egress::serve(&app, &record, request, &below).await;
    }
    check_up(&record)?;

    let (prefix, rest) = whole.split_at_checked(prefix_length).ok_or_else(ApiError::no_route)?;
    let rooted = if rest.starts_with('/') { rest } else { &format!("/{rest}") };
    let route = Route { sandbox: id, port, rest: rooted, prefix };
    let response = app.gateway.forward(&route, request).await?;
    Ok(response.map(Body::new))
}

/// Asks for the sandbox's own token, if it was made that way.
fn check_access(record: &Record, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(token) = &record.secure_access else { return Ok(()) };
    let presented = headers.get(headers::SECURE_ACCESS).map(http::HeaderValue::as_bytes);
    // All tokens have one length, so that comparing lengths tells nothing.
    let same = presented.is_some_and(|presented| token.reveal().as_bytes().ct_eq(presented).into());
    if same {
        return Ok(());
    }
    Err(ApiError::unauthorized(
        codes::MISSING_OR_INVALID_SECURE_ACCESS,
        "this sandbox asks for its token: send the headers that the endpoint answer carries",
    ))
}

/// A sandbox that is paused or over would keep the caller waiting for nothing.
fn check_up(record: &Record) -> Result<(), ApiError> {
    match record.phase() {
        Phase::Paused | Phase::Pausing => Err(ApiError::conflict(
            codes::SANDBOX_NOT_RUNNING,
            "the sandbox is paused: resume it first",
        )),
        Phase::Terminated | Phase::Failed => Err(ApiError::conflict(
            codes::SANDBOX_NOT_RUNNING,
            format!("the sandbox is over: {}", record.desired.status.message),
        )),
        Phase::Pending | Phase::Running | Phase::Resuming | Phase::Stopping => Ok(()),
    }
}
