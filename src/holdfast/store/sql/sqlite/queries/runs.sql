-- Runs as outsiders see and change them.

-- name: journal
-- A run's entries in order.
SELECT ENTRY_COLUMNS FROM journal WHERE run = ? ORDER BY seq LIMIT ?;

-- name: run_by_id
-- One run.
SELECT RUN_COLUMNS FROM runs r WHERE r.id = ?;

-- name: run_by_key
-- One run, by the store's own key.
SELECT RUN_COLUMNS FROM runs r WHERE r.key = ?;

-- name: has_left
-- Whether everything here has moved elsewhere.
SELECT 1 FROM moves WHERE state = 'left';

-- name: settled_runs
-- Those of many runs that have ended or wait for somebody's decision.
SELECT RUN_COLUMNS
FROM json_each(?) wanted CROSS JOIN runs r ON r.id = wanted.value
WHERE r.ended_at IS NOT NULL OR r.status IN ('parked', 'quarantined');

-- name: children
-- The runs that a run started.
SELECT RUN_COLUMNS FROM runs r WHERE r.parent = ? ORDER BY r.key;

-- name: find_runs
-- Runs in general; conditions are appended, all of them with bound parameters.
SELECT RUN_COLUMNS FROM runs r WHERE TRUE;

-- name: resume
-- Lets a halted run go on: one that was to begin later, when that was to be.
UPDATE runs
SET status = 'pending', updated_at = :now, ready_at = max(:now, coalesce((
        SELECT CAST(payload AS INTEGER) FROM inbox WHERE run = runs.key AND kind = 'pause'), 0)),
    blocked = :blocked, strikes = 0,
    resumes = resumes + 1, reason = NULL
WHERE key = :run;

-- name: reopen
-- Lets an ended run go on; a deadline that has passed would end it again at once, so it is dropped.
UPDATE runs
SET status = 'pending', ready_at = :now, updated_at = :now, blocked = :blocked, ended_at = NULL,
    output = NULL, reason = NULL, strikes = 0,
    deadline_at = CASE WHEN deadline_at > :now THEN deadline_at END
WHERE key = :run;

-- name: forget_child
-- Forgets that a child ended, if this entry delivered it: it may end again, and otherwise.
DELETE FROM inbox WHERE kind = 'child' AND id = (SELECT mail FROM journal WHERE run = ? AND seq = ?);

-- name: withdraw_end
-- A child that goes on has not ended: its parent may not be told so, and is told when it ends again.
DELETE FROM inbox
WHERE kind = 'child' AND kind <> 'message'
  AND (run, name) = (SELECT c.parent, c.parent_step FROM runs c JOIN runs p ON p.key = c.parent
      WHERE c.key = ? AND p.generation = c.parent_generation);

-- name: delete_entry
-- Forgets one entry of a run that has ended.
DELETE FROM journal WHERE run = ? AND seq = ?;

-- name: close_gaps
-- Makes sequence numbers dense again, the first of two steps: no number may occur twice even inside
-- one statement, so the new ones are negative at first.
UPDATE journal SET seq = -dense.place
FROM (SELECT id, row_number() OVER (ORDER BY seq) AS place FROM journal WHERE run = ?) AS dense
WHERE journal.id = dense.id;

-- name: turn_positive
-- The second of the two steps.
UPDATE journal SET seq = -seq WHERE run = ? AND seq < 0;

-- name: copy_journal
-- Copies the entries before one of them into the journal of another run. Deliveries lose their mail
-- id: it names a row of the other run's inbox.
INSERT INTO journal (
    run, seq, kind, key, at, epoch, position, attempt, failed, digest, input, output, started_at,
    due_at, format, codec, encryption_key, blob)
SELECT ?, seq, kind, key, at, 0, position, attempt, failed, digest, input, output, started_at,
    due_at, format, codec, encryption_key, blob
FROM journal WHERE run = ? AND seq < ? ORDER BY seq;

-- name: copy_promises
-- Copies the promises that the copied entries may refer to.
INSERT INTO promises (run, name, key, kind, type, prompt, created_at, resolved)
SELECT :target, name, key, kind, type, prompt, created_at,
    EXISTS (SELECT 1 FROM journal j WHERE j.run = :target AND j.kind = 'promise' AND j.key = p.key)
FROM promises p WHERE p.run = :source;

-- name: prunable
-- The runs that ended longest ago, but for the children of those that have not.
SELECT r.key FROM runs r
WHERE r.ended_at < ? AND NOT EXISTS (
    SELECT 1 FROM runs p WHERE p.key = r.parent AND p.ended_at IS NULL)
ORDER BY r.ended_at LIMIT ?;

-- name: retire_ids
-- Keeps the ids of runs that are about to go, and of starts that joined them, from being used again.
INSERT OR REPLACE INTO tombstones (id, workflow, status, digest, ended_at, expires_at)
SELECT j.id, r.workflow, r.status, j.digest, r.ended_at, :until
FROM joins j JOIN runs r ON r.key = j.run
WHERE j.run IN (SELECT value FROM json_each(:keys))
UNION ALL
SELECT id, workflow, status, digest, ended_at, :until FROM runs
WHERE key IN (SELECT value FROM json_each(:keys));

-- name: forget_ids
-- Lets ids be used again whose time has come.
DELETE FROM tombstones WHERE id IN (
    SELECT id FROM tombstones WHERE expires_at <= ? ORDER BY expires_at LIMIT ?);

-- name: tombstone
-- What is left of a deleted run.
SELECT status, ended_at, expires_at FROM tombstones WHERE id = ? AND expires_at > ?;

-- name: prune_journal
-- All entries of many runs.
DELETE FROM journal WHERE run IN (SELECT value FROM json_each(?));

-- name: prune_inbox
-- All mail of many runs.
DELETE FROM inbox WHERE run IN (SELECT value FROM json_each(?));

-- name: prune_promises
-- All promises of many runs.
DELETE FROM promises WHERE run IN (SELECT value FROM json_each(?));

-- name: prune_joins
-- The starts that joined one of many runs.
DELETE FROM joins WHERE run IN (SELECT value FROM json_each(?));

-- name: prune_runs
-- The runs themselves.
DELETE FROM runs WHERE key IN (SELECT value FROM json_each(?));
