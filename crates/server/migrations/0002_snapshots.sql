-- One row per snapshot that exists, is being made or failed. Times are microseconds since 1970.
CREATE TABLE snapshots (
    id              TEXT PRIMARY KEY,
    sandbox_id      TEXT NOT NULL,  -- whose files these are; it may be gone
    name            TEXT,
    image           TEXT NOT NULL,  -- what a sandbox that starts from it stands on
    state           TEXT NOT NULL CHECK (state IN ('creating', 'ready', 'failed', 'deleting')),
    reason          TEXT NOT NULL,
    message         TEXT NOT NULL,
    since           INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    bytes           INTEGER         -- once it is known
) STRICT, WITHOUT ROWID;
