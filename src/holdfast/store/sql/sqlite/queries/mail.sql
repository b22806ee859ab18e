-- The inbox: what outsiders write.

-- name: RUN_STATE
-- What decides who is told, and what mail does to a run.
    key, status, session, holds_session, parent, parent_step, epoch, generation, ready_at

-- name: run_state
-- What posting needs to know of a run.
SELECT RUN_STATE FROM runs WHERE id = ?;

-- name: key_state
-- The same, by the run's key.
SELECT RUN_STATE FROM runs WHERE key = ?;

-- name: insert_mail
-- Puts mail into an inbox.
INSERT INTO inbox (run, kind, name, payload, at, failed) VALUES (?, ?, ?, ?, ?, ?);

-- name: find_mail
-- Mail of a kind that comes once per name.
SELECT id, run, kind, name, payload, at, failed FROM inbox
WHERE run = ? AND kind = ? AND name = ? AND kind <> 'message';

-- name: adopt
-- A child that is under way is awaited by a later generation of its parent.
UPDATE runs SET parent_step = :step, parent_generation = :generation
WHERE key = :run AND parent_generation < :generation;

-- name: adopt_ended
-- A child that has ended is awaited once more.
UPDATE runs SET parent_step = :step, parent_generation = :generation WHERE key = :run;

-- name: delete_delivered_child_mail
-- Makes room for a child's end that is to be delivered once more.
DELETE FROM inbox
WHERE run = :run AND kind = 'child' AND name = :step AND kind <> 'message'
  AND id IN (SELECT mail FROM journal WHERE run = :run AND mail IS NOT NULL);

-- name: find_mail_of_kind
-- Mail of a kind that comes once per run.
SELECT id, run, kind, name, payload, at, failed FROM inbox
WHERE run = ? AND kind = ? AND kind <> 'message';

-- name: mail_of_one
-- New mail of one run.
SELECT id, run, kind, name, payload, at, failed FROM inbox WHERE run = ? AND id > ? ORDER BY id;

-- name: mail_of_many
-- New mail of many runs, each with the id it has seen.
SELECT i.id, i.run, i.kind, i.name, i.payload, i.at, i.failed
FROM json_each(?) wanted CROSS JOIN inbox i
    ON i.run = json_extract(wanted.value, '$[0]') AND i.id > json_extract(wanted.value, '$[1]')
ORDER BY i.id;

-- name: resolve_promise
-- Marks an open promise as answered.
UPDATE promises SET resolved = 1 WHERE run = ? AND name = ?;

-- name: reopen_promise
-- Lets a promise be answered anew whose answer is to be deleted.
UPDATE promises SET resolved = 0
WHERE run = :run AND name = (
    SELECT name FROM inbox WHERE id = :mail AND run = :run AND kind = 'promise');

-- name: delete_answer
-- Deletes an answer that its run refused.
DELETE FROM inbox WHERE id = :mail AND run = :run AND kind = 'promise';

-- name: wake
-- Makes a waiting or halted run claimable.
UPDATE runs SET status = 'pending', ready_at = :now, blocked = :blocked, reason = NULL, updated_at = :now
WHERE key = :run;

-- name: UNTENDED_RUN
-- It has a deadline, and nobody executes it who would see to that; see runs_deadline in schema.sql.
deadline_at IS NOT NULL AND owner IS NULL AND ended_at IS NULL
    AND (epoch = 0 OR status IN ('paused', 'parked', 'quarantined'))

-- name: overdue
-- Runs that are past their deadline, and nobody executes.
SELECT RUN_STATE FROM runs WHERE UNTENDED_RUN AND deadline_at <= :now ORDER BY deadline_at LIMIT :limit;

-- name: next_deadline
-- When the next of them will be.
SELECT min(deadline_at) FROM runs WHERE UNTENDED_RUN;

-- name: add_end
-- The last entry of a run that ends without an owner.
INSERT INTO journal (run, seq, kind, key, at, epoch, position, attempt, failed)
SELECT :run, coalesce((SELECT max(seq) FROM journal WHERE run = :run), 0) + 1, 'end', '', :now, epoch,
    0, 0, 1
FROM runs WHERE key = :run;

-- name: pause
-- Stops a run that nobody owns.
UPDATE runs SET status = 'paused', ready_at = NULL, reason = 'paused by hand', updated_at = ?
WHERE key = ?;

-- name: keep_delay
-- A pause keeps the time at which the run that it stops was to begin.
UPDATE inbox SET payload = CAST(:ready_at AS BLOB) WHERE run = :run AND kind = 'pause';

-- name: delete_mail_of_kind
-- Takes back mail of a kind.
DELETE FROM inbox WHERE run = ? AND kind = ?;

-- name: promises
-- What a run awaits or awaited from outside.
SELECT run, name, key, kind, type, prompt, created_at, resolved FROM promises
WHERE run = ? ORDER BY created_at, name;
