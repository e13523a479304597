//! The port at which a sandbox's policy and vault are read and changed. No such port is in the
//! sandbox: the server answers, and asks for a token that the sandbox does not have.

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, header};
use osb_api::{codes, headers};
use subtle::ConstantTimeEq;

use super::{policy, vault};
use crate::{app::App, error::ApiError, record::Record};

/// Answers for port 18080. `rest` is the path below it.
pub(super) async fn serve(
    app: &App,
    record: &Record,
    request: Request,
    rest: &str,
) -> Result<Response, ApiError> {
    if rest == "/healthz" {
        policy::check_power(&app.reconciler)?;
        return Ok("ok".into_response());
    }
    if vault::is_closed(rest) {
        return vault::serve(app, record, rest, request).await;
    }
    check_token(record, request.headers())?;
    if rest.starts_with(vault::PATH) {
        return vault::serve(app, record, rest, request).await;
    }
    if rest != "/policy" {
        return Err(ApiError::no_route());
    }
    match *request.method() {
        Method::GET | Method::POST | Method::PUT | Method::PATCH | Method::DELETE => {
            policy::at_port(app, record.id(), request).await
        }
        _ => {
            let mut response = ApiError::wrong_method().into_response();
            let allowed = HeaderValue::from_static(policy::METHODS);
            response.headers_mut().insert(header::ALLOW, allowed);
            Ok(response)
        }
    }
}

fn check_token(record: &Record, headers: &HeaderMap) -> Result<(), ApiError> {
    let presented = headers.get(headers::EGRESS_TOKEN).map(HeaderValue::as_bytes);
    let token = record.egress_token.reveal().as_bytes();
    // All tokens have one length, so that comparing lengths tells nothing.
    if presented.is_some_and(|presented| token.ct_eq(presented).into()) {
        return Ok(());
    }
    Err(ApiError::unauthorized(
        codes::EGRESS_UNAUTHORIZED,
        "this port asks for its token: send the headers that the endpoint answer carries",
    ))
}
