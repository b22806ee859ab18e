-- Named queues with limits, fair shares between their keys, and limiters of steps.

ALTER TABLE runs ADD COLUMN fairness_key TEXT NOT NULL DEFAULT '';

-- What apps have declared of their queues; a queue that nobody declared has no limits.
CREATE TABLE queues (
    name TEXT PRIMARY KEY,
    concurrency INTEGER,                          -- runs executed at once, by all workers together
    per_worker INTEGER,                           -- the same, by each worker
    rate_count INTEGER,                           -- first claims per rate_micros
    rate_micros INTEGER,
    next_at INTEGER NOT NULL DEFAULT 0,           -- when the rate allows the next one
    paused INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- How often each key of a queue was served: the least served goes first.
CREATE TABLE shares (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    served INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

-- Limiters that the steps of all workers share.
CREATE TABLE limits (
    name TEXT PRIMARY KEY,
    next_at INTEGER NOT NULL DEFAULT 0,           -- when the rate allows the next call
    held_until INTEGER NOT NULL DEFAULT 0         -- a provider asked for patience until then
) WITHOUT ROWID;
