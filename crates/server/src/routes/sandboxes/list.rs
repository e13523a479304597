use std::collections::BTreeMap;

use axum::{
    Json as JsonBody,
    extract::{RawQuery, State},
};
use osb_api::{
    codes,
    lifecycle::{ListSandboxesQuery, ListSandboxesResponse},
};

use crate::{app::App, error::ApiError, page, query, record::Record, view};

/// Lists sandboxes, newest first.
pub(crate) async fn list(
    State(app): State<App>,
    RawQuery(raw): RawQuery,
) -> Result<JsonBody<ListSandboxesResponse>, ApiError> {
    let query = parse(raw.as_deref().unwrap_or_default())?;
    let records =
        app.store.index().newest_first(|record| record.is_clients() && matches(record, &query));
    let (page, pagination) = page::cut(&records, query.page, query.page_size);
    let items = page.iter().map(|record| view::sandbox(record)).collect();
    Ok(JsonBody(ListSandboxesResponse { items, pagination }))
}

fn parse(raw: &str) -> Result<ListSandboxesQuery, ApiError> {
    let mut query = ListSandboxesQuery::default();
    for (key, value) in query::pairs(raw) {
        let value = value.unwrap_or_default();
        match key.as_str() {
            "state" => query.state.push(value),
            "metadata" => query.metadata = labels(&value)?,
            "page" => query.page = page::number(&value)?,
            "pageSize" => query.page_size = page::size(&value)?,
            _ => {}
        }
    }
    Ok(query)
}

/// The value of `metadata` is a form within the query. Some clients encode it once and some twice;
/// labels contain nothing that decoding once more could change.
pub(crate) fn labels(form: &str) -> Result<BTreeMap<String, String>, ApiError> {
    query::pairs(form)
        .map(|(key, value)| {
            value.map(|value| (key, value)).ok_or_else(|| {
                ApiError::invalid_as(
                    codes::INVALID_METADATA_FORMAT,
                    "metadata must be key=value pairs, joined by & and percent-encoded",
                )
            })
        })
        .collect()
}

fn matches(record: &Record, query: &ListSandboxesQuery) -> bool {
    let state = record.phase().as_str();
    (query.state.is_empty() || query.state.iter().any(|wanted| wanted.eq_ignore_ascii_case(state)))
        && query.metadata.iter().all(|(key, value)| record.metadata.get(key) == Some(value))
}
