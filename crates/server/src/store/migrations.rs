use std::sync::Arc;

use rusqlite::Connection;

use super::StoreError;

/// What brings the schema from version n to n + 1, in order. Never edit one that was released.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/0001_sandboxes.sql"),
    include_str!("../../migrations/0002_snapshots.sql"),
    include_str!("../../migrations/0003_policies.sql"),
    include_str!("../../migrations/0004_credential_proxy.sql"),
    include_str!("../../migrations/0005_vault_terms.sql"),
    include_str!("../../migrations/0006_image_digests.sql"),
    include_str!("../../migrations/0007_templates.sql"),
    include_str!("../../migrations/0008_history.sql"),
    include_str!("../../migrations/0009_access.sql"),
];

/// Brings the schema up to date.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let failed = |source| StoreError::Write(Arc::new(source));
    let version: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    let done = usize::try_from(version)
        .ok()
        .filter(|done| *done <= MIGRATIONS.len())
        .ok_or(StoreError::TooNew(version))?;
    for (number, sql) in (1_i64..).zip(MIGRATIONS).skip(done) {
        let change = connection.transaction().map_err(failed)?;
        change.execute_batch(sql).map_err(failed)?;
        change.pragma_update(None, "user_version", number).map_err(failed)?;
        change.commit().map_err(failed)?;
        tracing::info!(schema = number, "the database was brought up to date");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrating_twice_changes_nothing() {
        let mut connection = Connection::open_in_memory().expect("a database");
        migrate(&mut connection).expect("the first time");
        migrate(&mut connection).expect("the second time");
    }

    #[test]
    fn a_database_from_the_future_is_left_alone() {
        let mut connection = Connection::open_in_memory().expect("a database");
        connection.pragma_update(None, "user_version", 999).expect("a version");
        assert!(matches!(migrate(&mut connection), Err(StoreError::TooNew(999))));
    }
}
