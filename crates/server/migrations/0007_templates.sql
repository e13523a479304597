-- One row per template that exists, is being built or failed. Times are microseconds since 1970.
CREATE TABLE templates (
    id              TEXT PRIMARY KEY,
    request         TEXT NOT NULL,  -- what was asked for, as JSON
    phase           TEXT NOT NULL CHECK (phase IN ('pending', 'building', 'succeeded', 'failed')),
    message         TEXT,
    snapshot_id     TEXT,           -- the files, once they are kept
    manifest_ref    TEXT,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The template that a snapshot is the files of; no client hears of such a snapshot.
ALTER TABLE snapshots ADD COLUMN template_id TEXT;

-- The template that a sandbox was made from; it may be gone.
ALTER TABLE sandboxes ADD COLUMN template_id TEXT;
