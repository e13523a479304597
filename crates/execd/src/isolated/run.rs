//! Runs in a session.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, stream};
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, BodyStream, Limited};
use hyper::body::Incoming;
use osb_api::{
    execd::{
        CommandStatus, CreateSession, Event, EventKind, IsolatedRun, IsolatedRunStarted,
        RunCommand, RunInSession, RunIsolated, SessionCreated, Work,
    },
    headers,
};
use osb_core::{Clock, SystemClock};
use serde::Serialize;
use uuid::Uuid;

use super::session::{Busy, Session};
use crate::{
    daemon::Daemon,
    error::ApiError,
    events::{failure, now},
    reply, request as body,
};

/// The most that an answer may have which is read whole.
const ANSWER: usize = 1 << 20;

/// `POST …/run`.
pub(super) async fn run(
    State(daemon): State<Arc<Daemon>>,
    Path(id): Path<String>,
    content: Body,
) -> Result<Response, ApiError> {
    let session = daemon.isolation.get(&id)?;
    let RunIsolated { code, envs, timeout_seconds, background } = body::json(content).await?;
    if code.trim().is_empty() {
        return Err(ApiError::invalid("`code` is empty"));
    }
    let background = background == Some(true);
    let busy = session.use_now()?;
    session.begin_run();
    let timeout = timeout_seconds.map(|seconds| {
        i64::try_from(seconds)
            .ok()
            .and_then(|seconds| seconds.checked_mul(1000))
            .unwrap_or(i64::MAX)
    });
    let request = match session.shell() {
        Some(shell) if !background => {
            let run = RunInSession { command: with_variables(code, &envs)?, cwd: None, timeout };
            post(&format!("/session/{shell}/run"), &run)?
        }
        _ => {
            let command = RunCommand {
                command: Some(code),
                cwd: Some(session.workdir.clone()),
                background: background.then_some(true),
                timeout: timeout.filter(|_| !background),
                envs,
                ..RunCommand::default()
            };
            post("/command", &command)?
        }
    };
    let answer = session.ask(&daemon, request).await?;
    if background && answer.status() == StatusCode::OK {
        let run_id = started(answer).await?;
        session.remember(run_id);
        let (session_id, started_at) = (session.id, SystemClock.now());
        let mut response = reply::json(&IsolatedRunStarted { session_id, run_id, started_at });
        *response.status_mut() = StatusCode::ACCEPTED;
        return Ok(response);
    }
    Ok(pass_on(answer, busy))
}

/// The text with variables that only this run has: bash takes assignments before `eval` back.
fn with_variables(code: String, envs: &BTreeMap<String, String>) -> Result<String, ApiError> {
    if envs.is_empty() {
        return Ok(code);
    }
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let mut words = Vec::new();
    for (name, value) in envs {
        let mut letters = name.bytes();
        let begins = letters.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        if !begins || !letters.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(ApiError::invalid(format!("{name:?} cannot be a variable of a shell")));
        }
        if value.contains('\0') {
            return Err(ApiError::invalid(format!("the value of {name:?} contains NUL")));
        }
        words.push(format!("{name}={}", quoted(value)));
    }
    words.push("eval".to_owned());
    words.push(quoted(&code));
    Ok(words.join(" "))
}

/// Starts the shell that all runs of a session share, if there is one to start.
pub(super) async fn shell(
    session: &Session,
    daemon: &Arc<Daemon>,
) -> Result<Option<String>, ApiError> {
    let wish = CreateSession { cwd: Some(session.workdir.clone()) };
    let answer = session.ask(daemon, post("/session", &wish)?).await?;
    if answer.status() != StatusCode::OK {
        return Ok(None);
    }
    let made = serde_json::from_slice::<SessionCreated>(&whole(answer).await?);
    Ok(Some(made.map_err(|error| ApiError::runtime(&error))?.session_id))
}

/// The id in the first event of a run in the background, whose stream ends at once.
async fn started(answer: http::Response<Incoming>) -> Result<Uuid, ApiError> {
    let bytes = whole(answer).await?;
    let mut events = serde_json::Deserializer::from_slice(&bytes).into_iter::<Event>();
    let init = events.find_map(|event| event.ok().filter(|event| event.kind == EventKind::Init));
    let run_id = init.and_then(|event| Uuid::try_parse(&event.text?).ok());
    let failed = events.find_map(|event| event.ok()?.error);
    match (run_id, failed) {
        (_, Some(failure)) => Err(ApiError::refused(failure.evalue)),
        (None, None) => Err(ApiError::refused("the session did not start the run")),
        (Some(run_id), None) => Ok(run_id),
    }
}

/// `GET …/runs/{run}`.
pub(super) async fn status(
    State(daemon): State<Arc<Daemon>>,
    Path((id, run)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let session = daemon.isolation.get(&id)?;
    let run_id = run_id(&run)?;
    let _busy = session.use_now()?;
    let answer = session.ask(&daemon, status_of(run_id)?).await?;
    if answer.status() != StatusCode::OK {
        return Ok(answer.map(Body::new));
    }
    let status: CommandStatus =
        serde_json::from_slice(&whole(answer).await?).map_err(|error| ApiError::runtime(&error))?;
    Ok(reply::json(&IsolatedRun {
        session_id: session.id,
        run_id,
        running: status.running,
        exit_code: status.exit_code,
        error: status.error.filter(|error| !error.is_empty()),
        started_at: Some(status.started_at),
        finished_at: status.finished_at,
    }))
}

/// Whether a run in the background has not ended. One that cannot be asked about has.
pub(super) async fn is_running(session: &Arc<Session>, daemon: &Arc<Daemon>, run: Uuid) -> bool {
    let Ok(request) = status_of(run) else { return false };
    let Ok(answer) = session.ask(daemon, request).await else { return false };
    let Ok(bytes) = whole(answer).await else { return false };
    serde_json::from_slice::<CommandStatus>(&bytes).is_ok_and(|status| status.running)
}

/// How much runs in a session.
pub(super) async fn running(session: &Session, daemon: &Arc<Daemon>) -> Result<usize, ApiError> {
    let answer = session.ask(daemon, get("/work")?).await?;
    let work: Work =
        serde_json::from_slice(&whole(answer).await?).map_err(|error| ApiError::runtime(&error))?;
    // Whatever it says, it is one session.
    Ok(usize::from(work.running > 0))
}

/// `GET …/runs/{run}/logs`.
pub(super) async fn logs(
    State(daemon): State<Arc<Daemon>>,
    Path((id, run)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let session = daemon.isolation.get(&id)?;
    let run = run_id(&run)?.simple();
    let busy = session.use_now()?;
    let route = match uri.query() {
        Some(query) => format!("/command/{run}/logs?{query}"),
        None => format!("/command/{run}/logs"),
    };
    let mut answer = session.ask(&daemon, get(&route)?).await?;
    let headers = answer.headers_mut();
    if let Some(cursor) = headers.remove(headers::COMMAND_CURSOR) {
        headers.insert(headers::ISOLATED_CURSOR, cursor);
    }
    Ok(pass_on(answer, busy))
}

fn run_id(given: &str) -> Result<Uuid, ApiError> {
    Uuid::try_parse(given).map_err(|_| ApiError::no_run(given))
}

fn status_of(run: Uuid) -> Result<Request<Body>, ApiError> {
    get(&format!("/command/status/{}", run.simple()))
}

fn get(route: &str) -> Result<Request<Body>, ApiError> {
    Request::get(route).body(Body::empty()).map_err(|error| ApiError::runtime(&error))
}

fn post(route: &str, content: &impl Serialize) -> Result<Request<Body>, ApiError> {
    let json = serde_json::to_vec(content).expect("invariant: our requests have string keys");
    let json_type = HeaderValue::from_static("application/json");
    Request::post(route)
        .header(header::CONTENT_TYPE, json_type)
        .body(Body::from(json))
        .map_err(|error| ApiError::runtime(&error))
}

async fn whole(answer: http::Response<Incoming>) -> Result<bytes::Bytes, ApiError> {
    let body = Limited::new(answer.into_body(), ANSWER).collect().await;
    Ok(body.map_err(|error| ApiError::refused(error.to_string()))?.to_bytes())
}

/// Gives the session's answer to the caller as it comes. A stream of events that the session's end
/// cuts off says so with a last event.
pub(super) fn pass_on(answer: http::Response<Incoming>, busy: Busy) -> Response {
    let (parts, body) = answer.into_parts();
    let is_stream = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let frames = BodyStream::new(body).map(move |frame| match frame {
        Err(_) if is_stream => {
            let text = "the isolated session has ended".to_owned();
            let mut last = Vec::new();
            Event::error(failure("-1".to_owned(), text), now()).frame(&mut last);
            Ok(bytes::Bytes::from(last))
        }
        frame => frame.map(|frame| frame.into_data().unwrap_or_default()),
    });
    // Holds the session busy until the last of it is read or dropped.
    let frames =
        stream::unfold((Box::pin(frames), busy, false), |(mut frames, busy, over)| async move {
            if over {
                return None;
            }
            let frame = frames.next().await?;
            let over = frame.is_err();
            Some((frame, (frames, busy, over)))
        });
    let length = parts.headers.get(header::CONTENT_LENGTH).cloned();
    let mut response = Response::from_parts(parts, Body::from_stream(frames)).into_response();
    if let Some(length) = length {
        response.headers_mut().insert(header::CONTENT_LENGTH, length);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_run_are_quoted_and_named_well() {
        let envs = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let text = with_variables("echo 'x'".to_owned(), &envs("A_1", "it's $HOME")).unwrap();
        assert_eq!(text, r"A_1='it'\''s $HOME' eval 'echo '\''x'\'''");
        for name in ["", "1A", "A-B", "A=B", "A B", "é"] {
            assert!(with_variables(String::new(), &envs(name, "")).is_err(), "{name:?}");
        }
        assert!(with_variables(String::new(), &envs("A", "\0")).is_err());
        assert_eq!(with_variables("x".to_owned(), &BTreeMap::new()).unwrap(), "x");
    }
}
