//! What it does to a sandbox that somebody uses it.

use std::sync::Arc;

use http::HeaderMap;
use jiff::SignedDuration;
use osb_api::{codes, headers};
use osb_core::{Goal, Phase};

use crate::{
    app::App,
    error::ApiError,
    record::Record,
    store::Unchanged,
    uses::{InUse, Uses},
};

/// Puts the expiry of a sandbox off that was made for that, unless the request says not to. Nobody
/// waits for it, and of all requests within an interval one does it.
pub(super) fn renew(app: &App, record: &Record, headers: &HeaderMap) {
    let Some((seconds, expires_at)) = record.renew_seconds.zip(record.desired.expires_at) else {
        return;
    };
    let skip = headers.get(headers::ACCESS_RENEW);
    if skip.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"skip")) {
        return;
    }
    let now = app.clock.now();
    let Ok(later) = now.checked_add(SignedDuration::from_secs(seconds.into())) else { return };
    let interval = SignedDuration::try_from(app.renew_interval).unwrap_or(SignedDuration::MAX);
    if later <= expires_at || !record.uses.may_renew(now, interval) {
        return;
    }
    let (store, id) = (Arc::clone(&app.store), record.id());
    app.reconciler.beside(async move {
        let renewed = store.update(id, move |record| match record.desired.expires_at {
            Some(current) if now < current && record.desired.goal != Goal::Removed => {
                record.desired.expires_at = Some(current.max(later));
                Ok(())
            }
            _ => Err(()),
        });
        if let Err(Unchanged::Store(error)) = renewed.await {
            tracing::error!(%error, sandbox_id = %id, "an expiry could not be put off");
        }
    });
}

/// Notes that a sandbox is used, and wakes it if it sleeps. It is in use until what is returned is
/// dropped; there is nothing, if it does not matter whether it is.
pub(super) async fn begin(
    app: &App,
    record: Arc<Record>,
) -> Result<(Arc<Record>, Option<InUse>), ApiError> {
    if record.desired.idle.is_none() {
        return Ok((record, None));
    }
    let used = Uses::begin(&record.uses, &app.clock);
    // Only now: whoever has it paused from here on sees that it is in use.
    let record = app.record(record.id())?;
    let record = if is_asleep(&record) { wake(app, &record).await? } else { record };
    Ok((record, Some(used)))
}

/// Whether it sleeps, or somebody else has just asked that it goes on.
fn is_asleep(record: &Record) -> bool {
    let is_paused = matches!(record.phase(), Phase::Pausing | Phase::Paused | Phase::Resuming);
    match record.desired.goal {
        Goal::Asleep => true,
        Goal::Running => is_paused,
        Goal::Paused | Goal::Removed => false,
    }
}

/// Lets a sandbox go on that was paused because nobody used it, and waits until it does.
async fn wake(app: &App, record: &Record) -> Result<Arc<Record>, ApiError> {
    let id = record.id();
    let mut versions = app.store.index().subscribe(id).ok_or_else(|| ApiError::no_sandbox(id))?;
    let woken = app.store.update(id, |record| {
        if record.desired.goal != Goal::Asleep {
            // Somebody was faster.
            return Err(());
        }
        record.desired.goal = Goal::Running;
        record.requests += 1;
        Ok(())
    });
    match woken.await {
        Ok(_) | Err(Unchanged::Refused(())) => {}
        Err(Unchanged::Missing) => return Err(ApiError::no_sandbox(id)),
        Err(Unchanged::Store(error)) => return Err(ApiError::internal(error)),
    }
    let settled = versions.wait_for(|record| {
        record.phase() == Phase::Running
            || record.desired.goal != Goal::Running
            || record.phase().is_over()
    });
    let Ok(settled) = tokio::time::timeout(app.patience, settled).await else {
        return Err(ApiError::wakes_too_slowly());
    };
    let record = settled.map(|record| Arc::clone(&record)).map_err(|_| ApiError::no_sandbox(id))?;
    if record.desired.goal == Goal::Asleep {
        return Err(ApiError::failed(
            codes::SANDBOX_RESUME_FAILED,
            "the sandbox was paused because nobody used it, and could not be resumed: try again",
        ));
    }
    Ok(record)
}
