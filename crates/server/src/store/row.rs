//! Records as rows.

use std::{error::Error, sync::Arc};

use jiff::Timestamp;
use osb_api::SandboxId;
use osb_core::{Desired, Goal, IdleAction, IdleRule, Token};
use rusqlite::{Connection, Row, Transaction, params};

use super::{StoreError, history_row};
use crate::{
    history::History,
    record::{Purpose, Record},
    uses::Uses,
};

pub(super) fn load(connection: &Connection) -> Result<Vec<Record>, StoreError> {
    let failed = |source| StoreError::Read(Arc::new(source));
    let mut statement = connection
        .prepare(
            "SELECT id, spec, goal, status, expires_at, created_at, metadata, extensions, platform,
                    egress_token, secure_access, announced, policy, credential_proxy,
                    vault_terms, template_id, renew_seconds, idle_seconds, idle_action, asleep
             FROM sandboxes",
        )
        .map_err(failed)?;
    let mut histories = history_row::load(connection)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let mut record = read(row).map_err(|source| StoreError::Unreadable {
            what: "sandbox",
            id: row.get(0).unwrap_or_default(),
            source: Arc::from(source),
        })?;
        // One that was made before histories were kept has none.
        record.history = histories
            .remove(&record.id())
            .unwrap_or_else(|| History::beginning(&record.desired.status));
        records.push(record);
    }
    Ok(records)
}

fn read(row: &Row<'_>) -> Result<Record, Box<dyn Error + Send + Sync>> {
    let text = |column: usize| row.get::<_, String>(column);
    Ok(Record {
        desired: Desired {
            spec: serde_json::from_str(&text(1)?)?,
            goal: goal(&text(2)?, row.get(19)?)?,
            status: serde_json::from_str(&text(3)?)?,
            expires_at: row
                .get::<_, Option<i64>>(4)?
                .map(Timestamp::from_microsecond)
                .transpose()?,
            idle: idle(row)?,
        },
        created_at: Timestamp::from_microsecond(row.get(5)?)?,
        metadata: serde_json::from_str(&text(6)?)?,
        extensions: serde_json::from_str(&text(7)?)?,
        platform: row
            .get::<_, Option<String>>(8)?
            .map(|json| serde_json::from_str(&json))
            .transpose()?,
        egress_token: Token::new(text(9)?),
        secure_access: row.get::<_, Option<String>>(10)?.map(Token::new),
        announced: row.get(11)?,
        policy: row
            .get::<_, Option<String>>(12)?
            .map(|json| serde_json::from_str(&json).map(Arc::new))
            .transpose()?,
        credential_proxy: row.get(13)?,
        vault_terms: row
            .get::<_, Option<String>>(14)?
            .map(|json| serde_json::from_str(&json))
            .transpose()?
            .unwrap_or_default(),
        template: row.get::<_, Option<String>>(15)?.map(|id| id.parse()).transpose()?,
        renew_seconds: row.get(16)?,
        purpose: Purpose::default(),
        history: History::default(),
        requests: 0,
        failed_removals: 0,
        uses: Uses::default(),
    })
}

pub(super) fn write(
    transaction: &Transaction<'_>,
    record: &Record,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO sandboxes (id, spec, goal, status, expires_at, created_at, metadata,
                                extensions, platform, egress_token, secure_access, announced,
                                policy, credential_proxy, vault_terms, template_id,
                                renew_seconds, idle_seconds, idle_action, asleep)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
                 ?19, ?20)
         ON CONFLICT (id) DO UPDATE SET
             spec = excluded.spec, goal = excluded.goal, status = excluded.status,
             expires_at = excluded.expires_at,
             metadata = excluded.metadata, announced = excluded.announced,
             policy = excluded.policy, asleep = excluded.asleep",
    )?;
    let platform = record.platform.as_ref().map(serde_json::to_string).transpose()?;
    let policy = record.policy.as_deref().map(serde_json::to_string).transpose()?;
    statement.execute(params![
        record.id().to_string(),
        serde_json::to_string(&record.desired.spec)?,
        goal_word(record.desired.goal),
        serde_json::to_string(&record.desired.status)?,
        record.desired.expires_at.map(Timestamp::as_microsecond),
        record.created_at.as_microsecond(),
        serde_json::to_string(&record.metadata)?,
        serde_json::to_string(&record.extensions)?,
        platform,
        record.egress_token.reveal(),
        record.secure_access.as_ref().map(Token::reveal),
        record.announced,
        policy,
        record.credential_proxy,
        serde_json::to_string(&record.vault_terms)?,
        record.template.map(|id| id.to_string()),
        record.renew_seconds,
        record.desired.idle.map(|rule| rule.seconds),
        record.desired.idle.map(|rule| action_word(rule.action)),
        record.desired.goal == Goal::Asleep,
    ])?;
    Ok(())
}

pub(super) fn delete(transaction: &Transaction<'_>, id: SandboxId) -> rusqlite::Result<()> {
    history_row::delete(transaction, id)?;
    transaction
        .prepare_cached("DELETE FROM sandboxes WHERE id = ?1")?
        .execute(params![id.to_string()])
        .map(|_| ())
}

fn goal_word(goal: Goal) -> &'static str {
    match goal {
        Goal::Running => "running",
        Goal::Paused | Goal::Asleep => "paused",
        Goal::Removed => "removed",
    }
}

fn goal(word: &str, asleep: bool) -> Result<Goal, String> {
    match word {
        "running" => Ok(Goal::Running),
        "paused" if asleep => Ok(Goal::Asleep),
        "paused" => Ok(Goal::Paused),
        "removed" => Ok(Goal::Removed),
        _ => Err(format!("{word:?} is not a goal")),
    }
}

fn idle(row: &Row<'_>) -> Result<Option<IdleRule>, Box<dyn Error + Send + Sync>> {
    let (Some(seconds), Some(word)) = (row.get(17)?, row.get::<_, Option<String>>(18)?) else {
        return Ok(None);
    };
    let action = match word.as_str() {
        "pause" => IdleAction::Pause,
        "delete" => IdleAction::Remove,
        _ => return Err(format!("{word:?} is nothing to do with an idle sandbox").into()),
    };
    Ok(Some(IdleRule { seconds, action }))
}

fn action_word(action: IdleAction) -> &'static str {
    match action {
        IdleAction::Pause => "pause",
        IdleAction::Remove => "delete",
    }
}
