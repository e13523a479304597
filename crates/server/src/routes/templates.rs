//! Templates: sandboxes that are prepared once and started many times.

use axum::{
    Json as JsonBody,
    extract::{RawQuery, State},
};
use http::{HeaderName, StatusCode, Uri, header};
use osb_api::{
    TemplateId, codes,
    lifecycle::{
        CreateTemplateRequest, ListTemplatesQuery, ListTemplatesResponse, Template, TemplatePhase,
    },
};

use super::sandboxes;
use crate::{
    admission::{self, micros},
    app::App,
    error::ApiError,
    extract::{Json, Templated},
    page, place, query,
    template_record::TemplateRecord,
    templates, view,
};

/// Begins to build a template, and answers at once.
pub(super) async fn create(
    State(app): State<App>,
    uri: Uri,
    Json(request): Json<CreateTemplateRequest>,
) -> Result<(StatusCode, [(HeaderName, String); 1], JsonBody<Template>), ApiError> {
    check_power(&app)?;
    // A sandbox must be possible that is described like this.
    let sandbox = admission::admit_template(&request)?;
    admission::admit(sandbox, app.limits(), &app.store, &app.reconciler, app.clock.now())?;
    let place = app.templates.enter()?;
    let now = micros(app.clock.now());
    let record = TemplateRecord {
        id: TemplateId::random(),
        request,
        phase: TemplatePhase::Pending,
        message: None,
        kept: None,
        created_at: now,
        updated_at: now,
    };
    templates::begin(&app, record.clone(), place).await?;
    let location = format!("{}/templates/{}", place::mount(uri.path()), record.id);
    let shown = view::template(&record);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], JsonBody(shown)))
}

/// Lists templates, newest first.
pub(super) async fn list(
    State(app): State<App>,
    RawQuery(raw): RawQuery,
) -> Result<JsonBody<ListTemplatesResponse>, ApiError> {
    check_power(&app)?;
    let query = parse(raw.as_deref().unwrap_or_default())?;
    let records = app.store.templates().newest_first(|record| matches(record, &query));
    let (page, pagination) = page::cut(&records, query.page, query.page_size);
    let items = page.iter().map(|record| view::template(record)).collect();
    Ok(JsonBody(ListTemplatesResponse { items, pagination }))
}

fn parse(raw: &str) -> Result<ListTemplatesQuery, ApiError> {
    let mut query = ListTemplatesQuery::default();
    for (key, value) in query::pairs(raw) {
        let value = value.unwrap_or_default();
        match key.as_str() {
            "metadata" => query.metadata = sandboxes::labels(&value)?,
            "page" => query.page = page::number(&value)?,
            "pageSize" => query.page_size = page::size(&value)?,
            _ => {}
        }
    }
    Ok(query)
}

fn matches(record: &TemplateRecord, query: &ListTemplatesQuery) -> bool {
    let labels = record.request.metadata.as_ref();
    let has = |key, value| labels.and_then(|labels| labels.get(key)) == Some(value);
    query.metadata.iter().all(|(key, value)| has(key, value))
}

/// Shows a template.
pub(super) async fn get(
    State(app): State<App>,
    Templated(id): Templated,
) -> Result<JsonBody<Template>, ApiError> {
    check_power(&app)?;
    let record = app.store.templates().get(id).ok_or_else(|| ApiError::no_template(id))?;
    Ok(JsonBody(view::template(&record)))
}

/// Deletes a template. Sandboxes that were made from it keep their files.
pub(super) async fn delete(
    State(app): State<App>,
    Templated(id): Templated,
) -> Result<StatusCode, ApiError> {
    check_power(&app)?;
    let record = app.store.templates().get(id).ok_or_else(|| ApiError::no_template(id))?;
    if record.is_unfinished() {
        return Err(ApiError::conflict(
            codes::TEMPLATE_CONFLICT,
            "the template is still being built: delete it when it is Succeeded or Failed",
        ));
    }
    templates::forget(&app, record).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn check_power(app: &App) -> Result<(), ApiError> {
    if app.reconciler.can_keep() {
        return Ok(());
    }
    Err(ApiError::not_implemented(
        codes::TEMPLATE_NOT_SUPPORTED,
        "the runtime of this server keeps no files, and so has no templates",
    ))
}
