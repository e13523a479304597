//! What happened to sandboxes, as rows.

use std::{collections::HashMap, error::Error, sync::Arc};

use jiff::Timestamp;
use osb_api::SandboxId;
use rusqlite::{Connection, Row, Transaction, params};

use super::StoreError;
use crate::history::{Entry, History, KEPT};

type Failed = Box<dyn Error + Send + Sync>;

pub(super) fn load(connection: &Connection) -> Result<HashMap<SandboxId, History>, StoreError> {
    let failed = |source| StoreError::Read(Arc::new(source));
    let mut statement = connection
        .prepare(
            "SELECT sandbox_id, number, times, at, what FROM history ORDER BY sandbox_id, number",
        )
        .map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut entries: HashMap<SandboxId, Vec<Entry>> = HashMap::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let (id, entry) = read(row).map_err(|source| StoreError::Unreadable {
            what: "the history of sandbox",
            id: row.get(0).unwrap_or_default(),
            source: Arc::from(source),
        })?;
        entries.entry(id).or_default().push(entry);
    }
    Ok(entries.into_iter().map(|(id, entries)| (id, History::of(entries))).collect())
}

/// The number of the newest entry of each sandbox.
pub(super) fn newest(connection: &Connection) -> Result<HashMap<SandboxId, u64>, StoreError> {
    let failed = |source| StoreError::Read(Arc::new(source));
    let mut statement = connection
        .prepare("SELECT sandbox_id, max(number) FROM history GROUP BY sandbox_id")
        .map_err(failed)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    let mut newest = HashMap::new();
    for row in rows.map_err(failed)? {
        let (id, number): (String, i64) = row.map_err(failed)?;
        // What is neither is found when the rest is read.
        if let (Ok(id), Ok(number)) = (id.parse(), number.try_into()) {
            newest.insert(id, number);
        }
    }
    Ok(newest)
}

fn read(row: &Row<'_>) -> Result<(SandboxId, Entry), Failed> {
    let entry = Entry {
        number: u64::try_from(row.get::<_, i64>(1)?)?,
        times: u64::try_from(row.get::<_, i64>(2)?)?,
        at: Timestamp::from_microsecond(row.get(3)?)?,
        what: serde_json::from_str(&row.get::<_, String>(4)?)?,
    };
    Ok((row.get::<_, String>(0)?.parse()?, entry))
}

/// Writes what happened after the entry that was written last.
pub(super) fn write(
    transaction: &Transaction<'_>,
    id: SandboxId,
    history: &History,
    written: u64,
) -> Result<(), Failed> {
    let unwritten = history.entries().iter().filter(|entry| entry.number > written);
    let id = id.to_string();
    for entry in unwritten {
        let Entry { number, times, at, what } = &**entry;
        let (number, times) = (i64::try_from(*number)?, i64::try_from(*times)?);
        if times > 1 {
            // It stands for these as well.
            transaction
                .prepare_cached("DELETE FROM history WHERE sandbox_id = ?1 AND number > ?2")?
                .execute(params![id, number - times])?;
        }
        transaction
            .prepare_cached(
                "INSERT INTO history (sandbox_id, number, times, at, what)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                id,
                number,
                times,
                at.as_microsecond(),
                serde_json::to_string(what)?
            ])?;
    }
    if history.entries().len() == KEPT && history.newest() > written {
        let oldest = history.entries().first().map_or(0, |oldest| oldest.number);
        let oldest = i64::try_from(oldest)?;
        transaction
            .prepare_cached("DELETE FROM history WHERE sandbox_id = ?1 AND number < ?2")?
            .execute(params![id, oldest])?;
    }
    Ok(())
}

pub(super) fn delete(transaction: &Transaction<'_>, id: SandboxId) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM history WHERE sandbox_id = ?1")?
        .execute(params![id.to_string()])
        .map(|_| ())
}
