-- Schedules: what is to be started at which ticks.

-- What is started at which ticks. A tick moves next_at in the transaction that accepts its run.
CREATE TABLE schedules (
    name TEXT PRIMARY KEY,
    workflow TEXT NOT NULL,
    input BLOB NOT NULL,
    digest BLOB NOT NULL,
    options BLOB,                                 -- of its runs, opaque to the store
    cron TEXT NOT NULL,
    zone TEXT NOT NULL,
    catch_up TEXT NOT NULL,                       -- what becomes of ticks that nobody was there for
    paused INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER,                              -- NULL: there is no further tick
    last_at INTEGER,
    last_run TEXT,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;
