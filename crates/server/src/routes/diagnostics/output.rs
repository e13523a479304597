//! What the entrypoint of a sandbox printed: as execd tells, or as the runtime finds it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Empty};
use jiff::Timestamp;
use osb_api::{headers, ports};
use osb_core::{Chain, RuntimeError};
use osb_gateway::{GatewayError, Route};

use super::lines::Tail;
use crate::{app::Parts, record::Record};

/// The most that is shown.
pub(super) const MOST: usize = 1 << 20;
/// The most that is read of an answer: execd keeps as much as is shown, and a sandbox may say
/// anything in its place.
const READ: usize = 4 << 20;
/// How long an answer may take, if a request may take as long.
const WITHIN: Duration = Duration::from_secs(5);

/// Asks execd what the entrypoint printed; nothing if it does not begin to tell.
pub(super) async fn ask(
    app: &Parts,
    record: &Record,
    since: Option<Timestamp>,
    warnings: &mut Vec<String>,
) -> Option<Tail> {
    let mut tail = None;
    let reading = read(app, record, since, &mut tail, warnings);
    if tokio::time::timeout(WITHIN.min(app.patience), reading).await.is_err() {
        warnings.push("the sandbox did not tell in time all that it printed".to_owned());
    }
    tail
}

/// Looks for what the entrypoint printed where nobody in the sandbox has to be asked.
pub(super) async fn find(
    app: &Parts,
    record: &Record,
    since: Option<Timestamp>,
    warnings: &mut Vec<String>,
) -> Tail {
    let mut tail = Tail::new(MOST);
    let looking = app.reconciler.printed(record.id());
    match tokio::time::timeout(WITHIN.min(app.patience), looking).await {
        Ok(Ok(printed)) => {
            tail.push(&printed);
            if since.is_some() && !printed.is_empty() {
                warnings.push("it is not known when this was printed: all is shown".to_owned());
            }
        }
        Ok(Err(why)) => {
            if let Some(error @ RuntimeError::Failed { .. }) = &why {
                tracing::error!(error = %Chain(error), "cannot find what a sandbox printed");
            }
            warnings.push("what it printed is not there any more".to_owned());
        }
        Err(_) => warnings.push("what it printed could not be read in time".to_owned()),
    }
    tail
}

async fn read(
    app: &Parts,
    record: &Record,
    since: Option<Timestamp>,
    told: &mut Option<Tail>,
    warnings: &mut Vec<String>,
) {
    let path = match since {
        Some(since) => format!("/entrypoint/logs?since={}", since.as_millisecond()),
        None => "/entrypoint/logs".to_owned(),
    };
    let token = record.desired.spec.token.reveal();
    let (Ok(mut request), Ok(token)) =
        (Request::get(&path).body(Empty::<Bytes>::new()), HeaderValue::from_str(token))
    else {
        return;
    };
    request.headers_mut().insert(headers::EXECD_TOKEN, token);
    let route = Route { sandbox: record.id(), port: ports::EXECD, rest: &path, prefix: "" };
    let answer = match app.gateway.forward(&route, request).await {
        Ok(answer) => answer,
        Err(error) => return warnings.push(explain(&error)),
    };
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        return warnings.push(format!("execd in the sandbox answered {status} and no output"));
    }
    if since.is_some() && !answer.headers().contains_key(headers::OUTPUT_SINCE) {
        warnings
            .push("execd in the sandbox cannot tell when what was printed: all is shown".into());
    }
    let tail = told.insert(Tail::new(MOST));
    let mut body = answer.into_body();
    let mut left = READ;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return warnings.push("the sandbox broke off".to_owned());
        };
        let Some(data) = frame.data_ref() else { continue };
        tail.push(data);
        left = left.saturating_sub(data.len());
        if left == 0 {
            return warnings.push(format!("no more than {READ} bytes were read"));
        }
    }
}

fn explain(error: &GatewayError) -> String {
    match error {
        // Its own cause goes to the log.
        GatewayError::Failed { .. } => {
            tracing::error!(error = %Chain(error), "cannot ask a sandbox what it printed");
        }
        GatewayError::NotFound(_)
        | GatewayError::Refused { .. }
        | GatewayError::Broken { .. }
        | GatewayError::Timeout { .. }
        | GatewayError::BadRequest(_)
        | GatewayError::Busy => {}
    }
    format!("cannot ask the sandbox what it printed: {error}")
}
