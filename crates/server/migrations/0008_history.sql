-- What happened to sandboxes, the latest of it. A row may stand for several of the same kind in a row, the last of
-- which has its number. Times are microseconds since 1970.
CREATE TABLE history (
    sandbox_id      TEXT NOT NULL,
    number          INTEGER NOT NULL, -- counts what happened to the sandbox, from 1 on
    times           INTEGER NOT NULL,
    at              INTEGER NOT NULL,
    what            TEXT NOT NULL,    -- JSON
    PRIMARY KEY (sandbox_id, number)
) STRICT, WITHOUT ROWID;
