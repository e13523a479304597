//! Snapshots as rows.

use std::{error::Error, sync::Arc};

use jiff::Timestamp;
use osb_api::SnapshotId;
use osb_core::{ImageDigest, ImageName};
use rusqlite::{Connection, Row, Transaction, params};

use super::StoreError;
use crate::snapshot_record::{SnapshotRecord, SnapshotState};

pub(super) fn load(connection: &Connection) -> Result<Vec<SnapshotRecord>, StoreError> {
    let failed = |source| StoreError::Read(Arc::new(source));
    let mut statement = connection
        .prepare(
            "SELECT id, sandbox_id, name, image, state, reason, message, since, created_at, bytes,
                    image_digest, template_id
             FROM snapshots",
        )
        .map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        records.push(read(row).map_err(|source| StoreError::Unreadable {
            what: "snapshot",
            id: row.get(0).unwrap_or_default(),
            source: Arc::from(source),
        })?);
    }
    Ok(records)
}

fn read(row: &Row<'_>) -> Result<SnapshotRecord, Box<dyn Error + Send + Sync>> {
    let text = |column: usize| row.get::<_, String>(column);
    let time = |column: usize| {
        Ok::<_, Box<dyn Error + Send + Sync>>(Timestamp::from_microsecond(row.get(column)?)?)
    };
    Ok(SnapshotRecord {
        id: text(0)?.parse()?,
        sandbox: text(1)?.parse()?,
        name: row.get(2)?,
        image: ImageName::new(text(3)?),
        state: state(&text(4)?)?,
        reason: text(5)?,
        message: text(6)?,
        since: time(7)?,
        created_at: time(8)?,
        bytes: row.get::<_, Option<i64>>(9)?.map(u64::try_from).transpose()?,
        image_digest: row.get::<_, Option<String>>(10)?.map(ImageDigest::new),
        template: row.get::<_, Option<String>>(11)?.map(|id| id.parse()).transpose()?,
    })
}

pub(super) fn write(
    transaction: &Transaction<'_>,
    record: &SnapshotRecord,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO snapshots (id, sandbox_id, name, image, state, reason, message, since,
                                created_at, bytes, image_digest, template_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT (id) DO UPDATE SET
             state = excluded.state, reason = excluded.reason, message = excluded.message,
             since = excluded.since, bytes = excluded.bytes",
    )?;
    statement.execute(params![
        record.id.to_string(),
        record.sandbox.to_string(),
        record.name,
        record.image.as_str(),
        word(record.state),
        record.reason,
        record.message,
        record.since.as_microsecond(),
        record.created_at.as_microsecond(),
        record.bytes.map(i64::try_from).transpose()?,
        record.image_digest.as_ref().map(ImageDigest::as_str),
        record.template.map(|id| id.to_string()),
    ])?;
    Ok(())
}

pub(super) fn delete(transaction: &Transaction<'_>, id: SnapshotId) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM snapshots WHERE id = ?1")?
        .execute(params![id.to_string()])
        .map(|_| ())
}

fn word(state: SnapshotState) -> &'static str {
    match state {
        SnapshotState::Creating => "creating",
        SnapshotState::Ready => "ready",
        SnapshotState::Failed => "failed",
        SnapshotState::Deleting => "deleting",
    }
}

fn state(word: &str) -> Result<SnapshotState, String> {
    match word {
        "creating" => Ok(SnapshotState::Creating),
        "ready" => Ok(SnapshotState::Ready),
        "failed" => Ok(SnapshotState::Failed),
        "deleting" => Ok(SnapshotState::Deleting),
        _ => Err(format!("{word:?} is not a state")),
    }
}
