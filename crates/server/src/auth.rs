//! Who may call.

use std::net::IpAddr;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, header, uri::Authority};
use osb_api::{codes, headers};

use crate::{app::App, error::ApiError, place};

/// Asks for the API key, except where [`place::is_open`] says otherwise.
pub(crate) async fn require_key(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let current = app.current();
    if let Some(key) = &current.key
        && !place::is_open(request.uri().path())
    {
        let presented = request.headers().get(headers::API_KEY).ok_or_else(|| {
            ApiError::unauthorized(
                codes::MISSING_API_KEY,
                "the request carries no API key: send it in the header OPEN-SANDBOX-API-KEY",
            )
        })?;
        if !key.matches(presented.as_bytes()) {
            return Err(ApiError::unauthorized(
                codes::INVALID_API_KEY,
                "the API key is not the one of this server",
            ));
        }
    }
    check_local(&app, request.headers())?;
    if current.key.is_none()
        && !place::is_open(request.uri().path())
        && is_from_a_page(request.headers())
    {
        return Err(ApiError::invalid(
            "without a key the server takes no requests from web pages: start it with one",
        ));
    }
    Ok(next.run(request).await)
}

/// Without a key, refuses whoever asked for another machine.
pub(crate) fn check_local(app: &App, headers: &HeaderMap) -> Result<(), ApiError> {
    if app.current().key.is_some() || is_local(headers) {
        return Ok(());
    }
    Err(ApiError::invalid(
        "without a key the server answers to localhost only: ask for it by that name",
    ))
}

/// Whether a browser sent this on behalf of a page. What sandboxes serve through the proxy has this
/// server's own origin, so not even that one can be trusted.
fn is_from_a_page(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN)
        || headers.get("sec-fetch-site").is_some_and(|site| site != "none")
}

/// Whether the client asked for this machine. A site whose name was made to point here, to use the
/// server through a visitor's browser, asks for its own name.
fn is_local(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let authority = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    authority.is_some_and(|authority| {
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            || name.eq_ignore_ascii_case("localhost")
    })
}
