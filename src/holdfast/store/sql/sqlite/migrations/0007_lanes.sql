-- Lanes: an index that leads a claim from one to the next, however many runs wait in each.

-- A run's lane says how it waits its turn: '>' in front if it was claimed before; then nothing, if it
-- has no fairness key; '-' if it has one and sleeps; '+' and the key if it is in line.
DROP INDEX runs_ready;
CREATE INDEX runs_ready ON runs (
    workflow, queue, priority,
    CASE WHEN epoch > 0 THEN '>' ELSE '' END || CASE WHEN fairness_key = '' THEN ''
        WHEN ready_at > updated_at THEN '-' ELSE '+' || fairness_key END,
    ready_at, strikes)
    WHERE ready_at IS NOT NULL AND blocked = 0;

-- A queue's running runs are counted worker by worker.
DROP INDEX runs_owner;
CREATE INDEX runs_owner ON runs (owner, queue) WHERE owner IS NOT NULL;

ALTER TABLE queues ADD COLUMN rate_burst INTEGER NOT NULL DEFAULT 1;
