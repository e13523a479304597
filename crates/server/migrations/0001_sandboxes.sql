-- One row per sandbox that exists or should exist. Times are microseconds since 1970.
CREATE TABLE sandboxes (
    id              TEXT PRIMARY KEY,
    spec            TEXT NOT NULL,  -- JSON: what the runtime was asked to make, token included
    goal            TEXT NOT NULL CHECK (goal IN ('running', 'paused', 'removed')),
    status          TEXT NOT NULL,  -- JSON: phase, reason, message, since
    expires_at      INTEGER,        -- NULL is never
    created_at      INTEGER NOT NULL,
    metadata        TEXT NOT NULL,  -- JSON object
    extensions      TEXT NOT NULL,  -- JSON object
    platform        TEXT,           -- JSON, if the request named one
    egress_token    TEXT NOT NULL,
    secure_access   TEXT,           -- a token, if the sandbox asks for it
    announced       INTEGER NOT NULL -- whether anybody was told that the sandbox exists
) STRICT, WITHOUT ROWID;
