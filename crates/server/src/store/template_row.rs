//! Templates as rows.

use std::{error::Error, sync::Arc};

use jiff::Timestamp;
use osb_api::{TemplateId, lifecycle::TemplatePhase};
use rusqlite::{Connection, Row, Transaction, params};

use super::StoreError;
use crate::template_record::{KeptFiles, TemplateRecord};

pub(super) fn load(connection: &Connection) -> Result<Vec<TemplateRecord>, StoreError> {
    let failed = |source| StoreError::Read(Arc::new(source));
    let mut statement = connection
        .prepare(
            "SELECT id, request, phase, message, snapshot_id, manifest_ref, created_at, updated_at
             FROM templates",
        )
        .map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        records.push(read(row).map_err(|source| StoreError::Unreadable {
            what: "template",
            id: row.get(0).unwrap_or_default(),
            source: Arc::from(source),
        })?);
    }
    Ok(records)
}

fn read(row: &Row<'_>) -> Result<TemplateRecord, Box<dyn Error + Send + Sync>> {
    let text = |column: usize| row.get::<_, String>(column);
    let maybe = |column: usize| row.get::<_, Option<String>>(column);
    let time = |column: usize| {
        Ok::<_, Box<dyn Error + Send + Sync>>(Timestamp::from_microsecond(row.get(column)?)?)
    };
    let kept = match (maybe(4)?, maybe(5)?) {
        (Some(snapshot), Some(manifest)) => {
            Some(KeptFiles { snapshot: snapshot.parse()?, manifest })
        }
        _ => None,
    };
    Ok(TemplateRecord {
        id: text(0)?.parse()?,
        request: serde_json::from_str(&text(1)?)?,
        phase: phase(&text(2)?)?,
        message: maybe(3)?,
        kept,
        created_at: time(6)?,
        updated_at: time(7)?,
    })
}

pub(super) fn write(
    transaction: &Transaction<'_>,
    record: &TemplateRecord,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO templates (id, request, phase, message, snapshot_id, manifest_ref,
                                created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (id) DO UPDATE SET
             phase = excluded.phase, message = excluded.message,
             snapshot_id = excluded.snapshot_id, manifest_ref = excluded.manifest_ref,
             updated_at = excluded.updated_at",
    )?;
    statement.execute(params![
        record.id.to_string(),
        serde_json::to_string(&record.request)?,
        word(record.phase),
        record.message,
        record.kept.as_ref().map(|kept| kept.snapshot.to_string()),
        record.kept.as_ref().map(|kept| &kept.manifest),
        record.created_at.as_microsecond(),
        record.updated_at.as_microsecond(),
    ])?;
    Ok(())
}

pub(super) fn delete(transaction: &Transaction<'_>, id: TemplateId) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM templates WHERE id = ?1")?
        .execute(params![id.to_string()])
        .map(|_| ())
}

fn word(phase: TemplatePhase) -> &'static str {
    match phase {
        TemplatePhase::Pending => "pending",
        TemplatePhase::Building => "building",
        TemplatePhase::Succeeded => "succeeded",
        TemplatePhase::Failed => "failed",
    }
}

fn phase(word: &str) -> Result<TemplatePhase, String> {
    match word {
        "pending" => Ok(TemplatePhase::Pending),
        "building" => Ok(TemplatePhase::Building),
        "succeeded" => Ok(TemplatePhase::Succeeded),
        "failed" => Ok(TemplatePhase::Failed),
        _ => Err(format!("{word:?} is not a phase")),
    }
}
