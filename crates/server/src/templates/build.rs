//! One template, from its record to the files that are kept.

use std::{convert::Infallible, sync::Arc, time::Duration};

use osb_api::{
    SnapshotId, TemplateId,
    lifecycle::{CreateSandboxRequest, TemplatePhase},
};
use osb_core::{Chain, Phase};

use super::probe;
use crate::{
    admission::{self, Probe, micros},
    app::App,
    borrowed::Borrowed,
    error::ApiError,
    record::{Purpose, Record},
    snapshot_record::{SnapshotRecord, SnapshotState},
    store::Unchanged,
    template_record::{KeptFiles, TemplateRecord},
};

/// How long the sandbox may take to start; its image may have to be pulled.
const START_WITHIN: Duration = Duration::from_hours(1);
/// More than everything takes: it ends even if nobody ends it.
const WITHIN: Duration = Duration::from_hours(4);

pub(super) async fn build(app: &App, id: TemplateId) {
    let Ok(_turn) = app.templates.turns.acquire().await else { return };
    let begun = change(app, id, |record| {
        record.kept = None;
        (TemplatePhase::Building, Some("the sandbox is being prepared".to_owned()))
    });
    let Some(record) = begun.await else { return };
    tracing::info!(template_id = %id, "building the template");
    match prepare(app, &record).await {
        Ok(kept) => {
            tracing::info!(template_id = %id, snapshot_id = %kept.snapshot, "the template is built");
            change(app, id, |record| {
                record.kept = Some(kept);
                (TemplatePhase::Succeeded, None)
            })
            .await;
        }
        Err(why) => {
            tracing::warn!(template_id = %id, "the template could not be built");
            change(app, id, |_| (TemplatePhase::Failed, Some(why))).await;
        }
    }
}

/// Brings the template into another phase. `None` if it is gone, or nothing can be written down.
async fn change(
    app: &App,
    id: TemplateId,
    next: impl FnOnce(&mut TemplateRecord) -> (TemplatePhase, Option<String>) + Send + 'static,
) -> Option<Arc<TemplateRecord>> {
    let now = micros(app.clock.now());
    let changed = app.store.update(id, move |record: &mut TemplateRecord| {
        let (phase, message) = next(record);
        record.become_phase(phase, message, now);
        Ok::<(), Infallible>(())
    });
    match changed.await {
        Ok(record) => Some(record),
        Err(Unchanged::Missing) => None,
        Err(Unchanged::Refused(never)) => match never {},
        Err(Unchanged::Store(error)) => {
            tracing::error!(
                template_id = %id, error = %Chain(&error),
                "the template cannot be written down; the next server builds it"
            );
            None
        }
    }
}

/// Starts a sandbox, waits until it is ready and warm, and keeps its files; or says why not.
async fn prepare(app: &App, template: &TemplateRecord) -> Result<KeptFiles, String> {
    let sandbox = describe(app, template).map_err(said)?;
    let id = sandbox.id();
    let _borrowed = Borrowed::new(id, &app.reconciler);
    let made = app.reconciler.create(sandbox, None, START_WITHIN).wait().await;
    let made = made.map_err(|reason| said(reason.into()))?;
    if made.phase() != Phase::Running {
        let how = &made.desired.status.message;
        return Err(format!("the sandbox did not come up: {how}"));
    }
    let readiness = template.request.readiness.as_ref();
    let probe = Probe::of(readiness).map_err(said)?;
    let warm = async {
        if let Some(probe) = &probe {
            probe::succeed(app, &made, probe).await?;
        }
        tokio::time::sleep(admission::warmup(readiness)).await;
        Ok::<(), String>(())
    };
    tokio::select! {
        warm = warm => warm?,
        how = ended(app, &made) => return Err(format!("the sandbox ended before it was ready: {how}")),
    }
    keep(app, template.id, &made).await.map_err(said)
}

/// The sandbox whose files the template will be.
fn describe(app: &App, template: &TemplateRecord) -> Result<Record, ApiError> {
    let request = admission::admit_template(&template.request)?;
    let request = CreateSandboxRequest { metadata: None, ..request };
    let now = app.clock.now();
    let mut record = admission::admit(request, app.limits(), &app.store, &app.reconciler, now)?;
    record.purpose = Purpose::Template;
    record.desired.expires_at = now.checked_add(WITHIN).ok();
    Ok(record)
}

/// Waits until the sandbox does not run any more, and says how that came.
async fn ended(app: &App, made: &Record) -> String {
    let Some(mut records) = app.store.index().subscribe(made.id()) else {
        return "it was removed".to_owned();
    };
    match records.wait_for(|record| record.phase() != Phase::Running).await {
        Ok(record) => record.desired.status.message.clone(),
        Err(_) => "it was removed".to_owned(),
    }
}

async fn keep(app: &App, template: TemplateId, made: &Record) -> Result<KeptFiles, ApiError> {
    let now = micros(app.clock.now());
    let spec = &made.desired.spec;
    let snapshot = SnapshotId::random();
    let record = SnapshotRecord {
        id: snapshot,
        sandbox: made.id(),
        name: None,
        image: spec.image.clone(),
        image_digest: spec.image_digest.clone(),
        template: Some(template),
        state: SnapshotState::Creating,
        reason: "template_ready".to_owned(),
        message: "the files of a template are being kept".to_owned(),
        since: now,
        created_at: now,
        bytes: None,
    };
    app.store.insert(record).await?;
    let taken = app.reconciler.take(snapshot).await;
    taken.map_err(|_| ApiError::internal("the server is ending"))??;
    let manifest = match &spec.image_digest {
        Some(digest) => format!("snapshot:{snapshot}@{}", digest.as_str()),
        None => format!("snapshot:{snapshot}"),
    };
    Ok(KeptFiles { snapshot, manifest })
}

/// What clients may read of an error; the log gets the rest.
fn said(error: ApiError) -> String {
    error.into_body().message
}
