-- Remembers the starts that joined a run of their session, so that they can be repeated.

CREATE TABLE joins (
    id TEXT PRIMARY KEY,
    run INTEGER NOT NULL,
    digest BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX joins_run ON joins (run);
