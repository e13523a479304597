//! The way into a sandbox. It asks for no API key: execd and `secureAccess` have their own tokens, and
//! a signed address is one.

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::HeaderMap;
use osb_api::{codes, headers, ports};
use osb_core::Phase;
use osb_gateway::{Held, Route};
use subtle::ConstantTimeEq;

use super::{access, egress};
use crate::{
    app::App,
    error::ApiError,
    extract::Id,
    ingress::{Destination, Unsigned},
    place::SandboxPath,
    record::Record,
};

pub(super) async fn forward(
    State(app): State<App>,
    Id(id): Id,
    request: Request,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    let (port, below) =
        SandboxPath::parse(path).and_then(SandboxPath::proxied).ok_or_else(ApiError::no_route)?;
    let prefix = path.len() - below.len();
    let to = Destination::at(id, port)?;
    reach(&app, &to, prefix, request).await
}

/// Passes a request on to where it is for. The first `prefix` bytes of its path say where that is,
/// and are not for the service.
pub(crate) async fn reach(
    app: &App,
    to: &Destination,
    prefix: usize,
    mut request: Request,
) -> Result<Response, ApiError> {
    let whole = request.uri().path_and_query().map_or("", |whole| whole.as_str()).to_owned();
    let (prefix, rest) = whole.split_at_checked(prefix).ok_or_else(ApiError::no_route)?;
    check_signature(app, to)?;
    let record = app.record(to.id)?;
    if to.signature.is_none() {
        check_access(&record, request.headers())?;
    }
    if to.port == ports::EGRESS {
        // That is no port of the sandbox, so nothing has to wake for it.
        record.uses.note(app.clock.now());
        access::renew(app, &record, request.headers());
        let below = rest.split('?').next().unwrap_or_default();
        return egress::serve(app, &record, request, below).await;
    }
    let (record, used) = access::begin(app, record).await?;
    check_up(&record)?;
    access::renew(app, &record, request.headers());
    if let Some(used) = used {
        request.extensions_mut().insert(Held::new(used));
    }

    let rooted = if rest.is_empty() || rest.starts_with('?') { &format!("/{rest}") } else { rest };
    let route = Route { sandbox: to.id, port: to.port, rest: rooted, prefix };
    let response = app.gateway.forward(&route, request).await?;
    Ok(response.map(Body::new))
}

/// Refuses an address whose signature is not good, whatever else the request has.
fn check_signature(app: &App, to: &Destination) -> Result<(), ApiError> {
    let Some(signature) = to.signature else { return Ok(()) };
    let checked = app.signer.check(to.id, to.port, signature, app.clock.now());
    checked.map_err(|unsigned| match unsigned {
        Unsigned::Wrong => ApiError::signature_invalid(),
        Unsigned::Expired => ApiError::signature_expired(),
    })
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
