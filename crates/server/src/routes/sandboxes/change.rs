//! What clients may change about a sandbox while it lives.

use axum::{Json as JsonBody, extract::State};
use osb_api::{
    codes,
    lifecycle::{MetadataPatch, RenewExpirationRequest, RenewExpirationResponse, Sandbox, Time},
};
use osb_core::{Goal, check_labels};

use crate::{
    admission::{MAX_LABELS, micros, too_many_labels},
    app::App,
    error::ApiError,
    extract::{Id, Json},
    history::Happening,
    view,
};

/// Changes labels: text sets one, `null` removes one, absent ones stay.
pub(crate) async fn metadata(
    State(app): State<App>,
    Id(id): Id,
    Json(patch): Json<MetadataPatch>,
) -> Result<JsonBody<Sandbox>, ApiError> {
    if patch.keys().any(|key| key.starts_with("opensandbox.io/")) {
        return Err(ApiError::invalid_as(
            codes::RESERVED_METADATA_LABEL,
            "metadata keys that begin with opensandbox.io/ are reserved",
        ));
    }
    let set = patch.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
    check_labels(&set.collect())?;
    let now = app.clock.now();
    let changed = app.store.update(id, move |record| {
        for (key, value) in patch {
            match value {
                Some(value) => record.metadata.insert(key, value),
                None => record.metadata.remove(&key),
            };
        }
        if record.metadata.len() > MAX_LABELS {
            return Err(too_many_labels());
        }
        record.tell(now, Happening::MetadataChanged { labels: record.metadata.len() });
        Ok(())
    });
    let record = changed.await.map_err(|unchanged| unchanged.answer(id))?;
    Ok(JsonBody(view::sandbox(&record)))
}

/// Sets when the sandbox ends by itself.
pub(crate) async fn renew(
    State(app): State<App>,
    Id(id): Id,
    Json(request): Json<RenewExpirationRequest>,
) -> Result<JsonBody<RenewExpirationResponse>, ApiError> {
    let expires_at = micros(request.expires_at.0);
    let now = app.clock.now();
    if expires_at <= now {
        return Err(ApiError::invalid_as(
            codes::INVALID_EXPIRATION,
            "expiresAt must lie in the future",
        ));
    }
    let changed = app.store.update(id, move |record| match record.desired.expires_at {
        None => Err(ApiError::conflict(
            codes::INVALID_EXPIRATION,
            "the sandbox was made without a timeout: it lives until it is deleted",
        )),
        Some(current) if current <= now || record.desired.goal == Goal::Removed => {
            Err(ApiError::conflict(codes::INVALID_EXPIRATION, "the sandbox is being removed"))
        }
        Some(_) => {
            record.desired.expires_at = Some(expires_at);
            record.tell(now, Happening::Renewed { until: expires_at });
            record.requests += 1;
            Ok(())
        }
    });
    changed.await.map_err(|unchanged| unchanged.answer(id))?;
    Ok(JsonBody(RenewExpirationResponse { expires_at: Time(expires_at) }))
}
