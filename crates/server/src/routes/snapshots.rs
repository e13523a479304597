//! Snapshots: files of sandboxes, kept.

use axum::{
    Json as JsonBody,
    extract::{RawQuery, State},
};
use http::{HeaderName, StatusCode, Uri, header};
use osb_api::{
    SnapshotId, codes,
    lifecycle::{CreateSnapshotRequest, ListSnapshotsQuery, ListSnapshotsResponse, Snapshot},
};
use osb_core::{Goal, Phase};

use crate::{
    admission::micros,
    app::App,
    error::ApiError,
    extract::{Id, OptionalJson, Snapshotted},
    page, place, query,
    record::Record,
    snapshot_record::{SnapshotRecord, SnapshotState},
    store::Unchanged,
    view,
};

const MAX_NAME: usize = 256;

/// Keeps the files of a sandbox, running or paused.
///
/// Answers once they are kept; a snapshot that needs longer than 25 seconds is answered as
/// `Creating`. One that fails before that leaves nothing behind.
pub(super) async fn create(
    State(app): State<App>,
    Id(id): Id,
    uri: Uri,
    OptionalJson(request): OptionalJson<CreateSnapshotRequest>,
) -> Result<(StatusCode, [(HeaderName, String); 1], JsonBody<Snapshot>), ApiError> {
    let source = app.record(id)?;
    if !app.reconciler.can_keep() {
        return Err(ApiError::not_implemented(
            codes::SNAPSHOT_NOT_IMPLEMENTED,
            "the runtime of this server does not take snapshots",
        ));
    }
    let name = request.unwrap_or_default().name;
    if name.as_ref().is_some_and(|name| name.is_empty() || name.len() > MAX_NAME) {
        return Err(ApiError::invalid(format!("name must have 1 to {MAX_NAME} bytes")));
    }
    check_source(&source)?;
    let now = micros(app.clock.now());
    let record = SnapshotRecord {
        id: SnapshotId::random(),
        sandbox: id,
        name,
        image: source.desired.spec.image.clone(),
        image_digest: source.desired.spec.image_digest.clone(),
        template: None,
        state: SnapshotState::Creating,
        reason: "snapshot_accepted".to_owned(),
        message: "the files are being kept".to_owned(),
        since: now,
        created_at: now,
        bytes: None,
    };
    app.store.insert(record.clone()).await?;
    let taken = tokio::time::timeout(app.patience, app.reconciler.take(record.id)).await;
    let shown = match taken {
        Ok(Ok(taken)) => view::snapshot(&*taken?),
        // It takes longer, or the server is about to end.
        Ok(Err(_)) | Err(_) => view::snapshot(&record),
    };
    let location = format!("{}/snapshots/{}", place::mount(uri.path()), record.id);
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], JsonBody(shown)))
}

fn check_source(source: &Record) -> Result<(), ApiError> {
    let up = matches!(source.phase(), Phase::Running | Phase::Paused);
    if up && source.desired.goal != Goal::Removed {
        return Ok(());
    }
    Err(ApiError::conflict(
        codes::SNAPSHOT_INVALID_SOURCE_STATE,
        format!(
            "only a running or paused sandbox has files to keep, and this one is {}",
            source.phase()
        ),
    ))
}

/// Lists snapshots, newest first.
pub(super) async fn list(
    State(app): State<App>,
    RawQuery(raw): RawQuery,
) -> Result<JsonBody<ListSnapshotsResponse>, ApiError> {
    let query = parse(raw.as_deref().unwrap_or_default())?;
    let records =
        app.store.snapshots().newest_first(|record| record.is_clients() && matches(record, &query));
    let (page, pagination) = page::cut(&records, query.page, query.page_size);
    let items = page.iter().map(|record| view::snapshot(record)).collect();
    Ok(JsonBody(ListSnapshotsResponse { items, pagination }))
}

fn parse(raw: &str) -> Result<ListSnapshotsQuery, ApiError> {
    let mut query = ListSnapshotsQuery::default();
    for (key, value) in query::pairs(raw) {
        let value = value.unwrap_or_default();
        match key.as_str() {
            "sandboxId" => query.sandbox_id = Some(value),
            "name" => query.name = Some(value),
            "state" => query.state.push(value),
            "page" => query.page = page::number(&value)?,
            "pageSize" => query.page_size = page::size(&value)?,
            _ => {}
        }
    }
    Ok(query)
}

fn matches(record: &SnapshotRecord, query: &ListSnapshotsQuery) -> bool {
    let state = record.state.as_str();
    query.sandbox_id.as_ref().is_none_or(|id| *id == record.sandbox.to_string())
        && query.name.as_ref().is_none_or(|name| record.name.as_ref() == Some(name))
        && (query.state.is_empty() || query.state.iter().any(|s| s.eq_ignore_ascii_case(state)))
}

/// Shows a snapshot.
pub(super) async fn get(
    State(app): State<App>,
    Snapshotted(id): Snapshotted,
) -> Result<JsonBody<Snapshot>, ApiError> {
    let record = app.store.snapshots().get(id).filter(|record| record.is_clients());
    let record = record.ok_or_else(|| ApiError::no_snapshot(id))?;
    Ok(JsonBody(view::snapshot(&record)))
}

/// Deletes a snapshot. Sandboxes that started from it keep their files.
pub(super) async fn delete(
    State(app): State<App>,
    Snapshotted(id): Snapshotted,
) -> Result<StatusCode, ApiError> {
    let now = app.clock.now();
    let marked = app.store.update(id, move |record: &mut SnapshotRecord| {
        if !record.is_clients() {
            return Err(ApiError::no_snapshot(id));
        }
        if record.state == SnapshotState::Creating {
            return Err(ApiError::conflict(
                codes::SNAPSHOT_INVALID_STATE,
                "the snapshot is still being taken: delete it when it is Ready or Failed",
            ));
        }
        let message = "the snapshot is being deleted";
        record.become_state(SnapshotState::Deleting, "user_request", message, now);
        Ok(())
    });
    marked.await.map_err(|unchanged| match unchanged {
        Unchanged::Missing => ApiError::no_snapshot(id),
        Unchanged::Refused(error) => error,
        Unchanged::Store(error) => error.into(),
    })?;
    match tokio::time::timeout(app.patience, app.reconciler.let_go(id)).await {
        Ok(Ok(Ok(()))) => Ok(StatusCode::NO_CONTENT),
        Ok(_) | Err(_) => Err(ApiError::failed(
            codes::SNAPSHOT_DELETE_FAILED,
            "the snapshot could not be deleted yet; it is tried again until it is gone",
        )),
    }
}
