-- Workers, their leases, and what becomes of their runs when they die.

-- name: insert_worker
-- Publishes a worker.
INSERT INTO workers (
    id, host, pid, process_started, started_at, lease_seconds, lease_until, boot, note)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: renew
-- Renews a lease; no row: the worker has been reaped.
UPDATE workers SET lease_until = ? WHERE id = ?;

-- name: note_worker
-- Says something about a worker.
UPDATE workers SET note = ? WHERE id = ?;

-- name: delete_worker
-- Strikes a worker off.
DELETE FROM workers WHERE id = ?;

-- name: workers
-- All workers, the oldest first.
SELECT id, host, pid, process_started, started_at, lease_seconds, note, lease_until, boot
FROM workers ORDER BY started_at, id;

-- name: worker
-- One worker.
SELECT id, host, pid, process_started, started_at, lease_seconds, note, lease_until, boot
FROM workers WHERE id = ?;

-- name: MADE_PROGRESS
-- Whether a run completed anything since it was claimed: the search goes back from the journal's end
-- to the newest claim and no further.
EXISTS (
    SELECT 1 FROM journal j
    WHERE j.run = runs.key
      AND j.seq > (
        SELECT c.seq FROM journal c WHERE c.run = runs.key AND c.kind = 'claim'
        ORDER BY c.seq DESC LIMIT 1)
      AND j.kind IN ('step', 'timer', 'promise', 'child', 'message', 'thread'))

-- name: owned_by
-- The runs that a worker owns, with the epoch of each.
SELECT key, epoch FROM runs WHERE owner = ? ORDER BY key;

-- name: owned
-- A worker's runs, and whether each got any further since it was claimed.
SELECT key, id, strikes, MADE_PROGRESS FROM runs WHERE owner = ? ORDER BY key;

-- name: free
-- Makes a dead worker's run claimable; without a time, as of its last change.
UPDATE runs
SET status = 'pending', owner = NULL, ready_at = coalesce(:now, updated_at), strikes = :strikes,
    updated_at = coalesce(:now, updated_at)
WHERE key = :run;

-- name: quarantine
-- Stops a run that keeps killing its workers.
UPDATE runs
SET status = 'quarantined', owner = NULL, ready_at = NULL, strikes = :strikes, reason = :reason,
    updated_at = coalesce(:now, updated_at)
WHERE key = :run;

-- name: release_all
-- Hands back all runs of a worker that leaves, claimable as of their last change.
UPDATE runs SET status = 'pending', owner = NULL, ready_at = updated_at WHERE owner = ?;
