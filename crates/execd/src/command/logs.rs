use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State},
    response::Response,
};
use http::{HeaderValue, Uri, header};
use osb_api::headers;

use crate::{daemon::Daemon, error::ApiError, request::Parameters};

/// `GET /command/{id}/logs`: what a background command has printed from the cursor on. The header
/// of the answer is the cursor with which to ask for what comes next.
pub(super) async fn logs(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let cursor = cursor(Parameters::of(&uri)?.one("cursor"))?;
    let log = daemon.commands.get(&id).and_then(|command| command.log.clone());
    let log = log.ok_or_else(|| ApiError::invalid(format!("no background command is {id:?}")))?;
    let end = log.end();
    let mut response = Response::new(Body::from_stream(log.stream(cursor, end)));
    let headers = response.headers_mut();
    headers.insert(headers::COMMAND_CURSOR, HeaderValue::from(cursor.max(end)));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(response)
}

/// What is no number is the beginning, as published daemons have it.
fn cursor(given: Option<&str>) -> Result<u64, ApiError> {
    let number = given.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    u64::try_from(number).map_err(|_| ApiError::invalid("`cursor` is negative"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cursor_is_a_number_or_the_beginning() {
        for (given, expected) in [
            (None, Some(0)),
            (Some("17"), Some(17)),
            (Some("seventeen"), Some(0)),
            (Some("99999999999999999999"), Some(0)),
            (Some("-1"), None),
        ] {
            assert_eq!(cursor(given).ok(), expected, "{given:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_cursor_or_refused(text in any::<String>(), number in any::<i64>()) {
            prop_assert!(cursor(Some(&text)).is_ok() || text.starts_with('-'));
            prop_assert_eq!(cursor(Some(&number.to_string())).ok(), u64::try_from(number).ok());
        }
    }
}
