-- Retention: what is left of a deleted run, so that its request is not run again.

-- What is left of a run that was deleted: its id is not free again before expires_at.
CREATE TABLE tombstones (
    id TEXT PRIMARY KEY,
    workflow TEXT NOT NULL,
    status TEXT NOT NULL,
    digest BLOB NOT NULL,
    ended_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tombstones_expire ON tombstones (expires_at);
