//! What happened in and around a sandbox, for people who look for a fault.

mod events;
mod inspect;
mod lines;
mod logs;
mod output;

use axum::{
    Json,
    extract::{RawQuery, State},
    response::{IntoResponse, Response},
};
use http::{HeaderName, header};
use osb_api::{
    SandboxId, codes,
    diagnostics::{Delivery, Diagnostics, DiagnosticsKind},
};

use self::{
    events::EventScope,
    lines::Cut,
    logs::{LogScope, Logs},
};
use crate::{app::App, error::ApiError, extract::Id, query};

const TEXT: &str = "text/plain; charset=utf-8";
/// Says that there is a better way to ask.
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");

const MOST_LINES: u64 = 10_000;
const MOST_EVENTS: u64 = 500;

/// Something to read, and what there is to say about it.
#[derive(Debug, Default)]
struct Findings {
    cut: Cut,
    /// What is missing, and why.
    warnings: Vec<String>,
}

/// What a sandbox printed: as JSON if a scope is named, as plain text otherwise.
pub(super) async fn logs(
    State(app): State<App>,
    Id(id): Id,
    RawQuery(raw): RawQuery,
) -> Result<Response, ApiError> {
    let record = app.record(id)?;
    let asked = Logs::parse(raw.as_deref().unwrap_or_default())?;
    let findings = asked.find(&app, &record).await;
    Ok(match asked.scope {
        Some(scope) => findings.describe(id, DiagnosticsKind::Logs, scope.word()),
        None => findings.into_text(),
    })
}

/// What happened to a sandbox: as JSON if a scope is named, as plain text otherwise.
pub(super) async fn events(
    State(app): State<App>,
    Id(id): Id,
    RawQuery(raw): RawQuery,
) -> Result<Response, ApiError> {
    let record = app.record(id)?;
    let (mut scope, mut limit) = (None, 50);
    for (key, value) in query::pairs(raw.as_deref().unwrap_or_default()) {
        let value = value.unwrap_or_default();
        match key.as_str() {
            "scope" => scope = Some(EventScope::parse(&value)?),
            "limit" => limit = number("limit", &value, MOST_EVENTS)?,
            _ => {}
        }
    }
    let findings = events::find(&app, &record, scope.unwrap_or(EventScope::Lifecycle), limit);
    Ok(match scope {
        Some(scope) => findings.describe(id, DiagnosticsKind::Events, scope.word()),
        None => findings.into_text(),
    })
}

/// What a sandbox is made of, as plain text.
pub(super) async fn inspect(State(app): State<App>, Id(id): Id) -> Result<Response, ApiError> {
    let record = app.record(id)?;
    Ok(plain(inspect::describe(&app, &record).await))
}

/// All of it in short, as plain text.
pub(super) async fn summary(
    State(app): State<App>,
    Id(id): Id,
    RawQuery(raw): RawQuery,
) -> Result<Response, ApiError> {
    let record = app.record(id)?;
    let (mut tail, mut limit) = (50, 20);
    for (key, value) in query::pairs(raw.as_deref().unwrap_or_default()) {
        let value = value.unwrap_or_default();
        match key.as_str() {
            "tail" => tail = number("tail", &value, MOST_LINES)?,
            "event_limit" => limit = number("event_limit", &value, MOST_EVENTS)?,
            _ => {}
        }
    }
    let logs = Logs { scope: Some(LogScope::All), tail, since: None };
    let (about, logs) = tokio::join!(inspect::describe(&app, &record), logs.find(&app, &record));
    let events = events::find(&app, &record, EventScope::All, limit);
    let [events, logs] = [("Events", events), ("Logs", logs)].map(|(heading, findings)| {
        let text = findings.into_plain();
        let text = if text.is_empty() { "none\n" } else { &text };
        format!("\n== {heading} ==\n{text}")
    });
    Ok(plain(format!("== Sandbox ==\n{about}{events}{logs}")))
}

impl Findings {
    /// As JSON, in which the text is a field.
    fn describe(self, id: SandboxId, kind: DiagnosticsKind, scope: &str) -> Response {
        let Self { cut: Cut { text, is_cut }, warnings } = self;
        Json(Diagnostics {
            sandbox_id: id.to_string(),
            kind,
            scope: scope.to_owned(),
            delivery: Delivery::Inline,
            content_type: TEXT.to_owned(),
            content_length: Some(text.len() as u64),
            content: Some(text),
            content_url: None,
            expires_at: None,
            truncated: is_cut,
            warnings,
        })
        .into_response()
    }

    /// As text, with the warnings before it.
    fn into_plain(self) -> String {
        let Self { cut, warnings } = self;
        let warnings = warnings.into_iter().map(|warning| format!("warning: {warning}\n"));
        warnings.chain([cut.text]).collect()
    }

    fn into_text(self) -> Response {
        plain(self.into_plain())
    }
}

fn plain(text: String) -> Response {
    ([(header::CONTENT_TYPE, TEXT), (DEPRECATION, "true")], text).into_response()
}

fn number(name: &str, text: &str, most: u64) -> Result<usize, ApiError> {
    let number = query::number(name, text, 1, most)?;
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

/// One of the scopes that there are, in any case.
fn scope<S: Copy>(text: &str, all: &[(&'static str, S)]) -> Result<S, ApiError> {
    let wanted = text.trim();
    let found = all.iter().find(|(word, _)| word.eq_ignore_ascii_case(wanted));
    found.map(|(_, scope)| *scope).ok_or_else(|| {
        let words: Vec<&str> = all.iter().map(|(word, _)| *word).collect();
        let wanted: String = wanted.chars().take(64).collect();
        ApiError::invalid_as(
            codes::DIAGNOSTICS_SCOPE_UNSUPPORTED,
            format!("there is no scope {wanted:?} here: ask for one of {}", words.join(", ")),
        )
    })
}
