//! Who may call.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use osb_api::{codes, headers};

use crate::{app::App, error::ApiError, place};

/// Asks for the API key, except where [`place::is_open`] says otherwise.
pub(crate) async fn require_key(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if let Some(key) = &app.key
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
    Ok(next.run(request).await)
}
