-- What is only read. Every name is qualified: a pooler may have given the session any search_path.

-- name: RUN_COLUMNS
-- The columns of a RunRow, in the order in which Python reads them.
    r.key, r.id, r.workflow, r.version, r.queue, r.priority, r.status, r.epoch, r.owner,
    r.incarnation, r.generation, r.input, r.digest, r.output, r.created_at, r.updated_at,
    r.ended_at, r.ready_at, r.deadline_at, r.session, r.while_waiting, r.parent, r.parent_step,
    r.options, r.strikes, r.resumes, r.reason, r.fairness_key

-- name: ENTRY_COLUMNS
-- The columns of an Entry, in the order of its fields.
    seq, kind, key, at, epoch, position, attempt, failed, digest, input, output, started_at, due_at,
    mail

-- name: MAIL_COLUMNS
-- The columns of a Mail.
    i.id, i.run, i.kind, i.name, i.payload, i.at, i.failed

-- name: run_by_id
-- One run.
SELECT RUN_COLUMNS FROM "{schema}".runs r WHERE r.id = $1;

-- name: run_by_key
-- One run, by the store's own key.
SELECT RUN_COLUMNS FROM "{schema}".runs r WHERE r.key = $1;

-- name: claimed_runs
-- Runs that a worker has just claimed, in the order in which it did, and the places of its claims.
SELECT RUN_COLUMNS, (SELECT max(j.seq) FROM "{schema}".journal j WHERE j.run = r.key)
FROM unnest($1::bigint[]) WITH ORDINALITY AS taken (key, place)
JOIN "{schema}".runs r ON r.key = taken.key
WHERE r.owner = $2
ORDER BY taken.place;

-- name: has_left
-- Where to everything here has moved.
SELECT other FROM "{schema}".moves WHERE state = 'left';

-- name: settled_runs
-- Those of many runs that have ended or wait for somebody's decision.
SELECT RUN_COLUMNS FROM "{schema}".runs r
WHERE r.id = ANY($1::text[])
  AND (r.ended_at IS NOT NULL OR r.status IN ('parked', 'quarantined'));

-- name: children
-- The runs that a run started.
SELECT RUN_COLUMNS FROM "{schema}".runs r WHERE r.parent = $1 ORDER BY r.key;

-- name: ahead
-- The run of its session that a run which is due waits behind.
SELECT RUN_COLUMNS FROM "{schema}".runs r WHERE r.key = "{schema}".ahead($1, $2);

-- name: find_runs
-- Runs in general; conditions are appended, all of them with bound parameters.
SELECT RUN_COLUMNS FROM "{schema}".runs r WHERE TRUE;

-- name: journal
-- A run's entries in order.
SELECT ENTRY_COLUMNS FROM "{schema}".journal WHERE run = $1 ORDER BY seq;

-- name: mail_by_id
-- One piece of mail.
SELECT MAIL_COLUMNS FROM "{schema}".inbox i WHERE i.id = $1;

-- name: mail
-- New mail of many runs, each with the id it has seen.
SELECT MAIL_COLUMNS
FROM unnest($1::bigint[], $2::bigint[]) AS wanted (run, seen)
JOIN "{schema}".inbox i ON i.run = wanted.run AND i.id > wanted.seen
ORDER BY i.id;

-- name: promises
-- What a run awaits or awaited from outside.
SELECT run, name, key, kind, type, prompt, created_at, resolved FROM "{schema}".promises
WHERE run = $1 ORDER BY created_at, name;

-- name: next_ready
-- When a worker can claim the next run of these workflows.
SELECT "{schema}".next_ready($1::text[], $2, $3);

-- name: who_owns
-- Whom to name when an append is refused.
SELECT r.id, r.status, r.owner, r.epoch,
    (SELECT max(j.seq) FROM "{schema}".journal j WHERE j.run = r.key)
FROM "{schema}".runs r WHERE r.key = $1;

-- name: state
-- A session's whole state.
SELECT key, value FROM "{schema}".session_state WHERE session = $1 ORDER BY key COLLATE "C";

-- name: messages
-- A session's messages after one of them.
SELECT id, payload FROM "{schema}".session_messages WHERE session = $1 AND id > $2 ORDER BY id;

-- name: time
-- What time it is by the server's clock.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: workers
-- All workers, the oldest first.
SELECT id, host, pid, process_started, started_at, lease_seconds, "{schema}".lease_left(w), note
FROM "{schema}".workers w ORDER BY started_at, id;

-- name: worker
-- One worker.
SELECT id, host, pid, process_started, started_at, lease_seconds, "{schema}".lease_left(w), note
FROM "{schema}".workers w WHERE id = $1;

-- name: owned
-- The runs that a worker owns.
SELECT key, epoch FROM "{schema}".runs WHERE owner = $1 ORDER BY key;

-- name: is_dead
-- Whether a worker's death is certain.
SELECT "{schema}".is_dead($1);

-- name: reap
-- Strikes a worker off, if it is dead or overdue.
SELECT id, quarantined FROM "{schema}".reap($1, $2, $3);

-- name: prune
-- Deletes runs that ended long ago.
SELECT "{schema}".prune($1, $2, $3, $4);

-- name: prune_sessions
-- Forgets sessions that were used long ago.
SELECT "{schema}".prune_sessions($1, $2);

-- name: forget_requests
-- Deletes answers that nobody can still be waiting for, some of them at a time; says how many.
WITH gone AS (
    DELETE FROM "{schema}".requests WHERE id IN (
        SELECT id FROM "{schema}".requests WHERE at < now() - interval '10 minutes'
        LIMIT $1 FOR UPDATE SKIP LOCKED)
    RETURNING 1)
SELECT count(*) FROM gone;

-- name: tombstone
-- What is left of a deleted run.
SELECT status, ended_at, expires_at FROM "{schema}".tombstones WHERE id = $1;

-- name: deregister
-- A worker leaves in good order.
SELECT "{schema}".deregister($1);

-- name: orphans
-- Runs whose owner nobody knows: no one would ever free them.
SELECT r.id FROM "{schema}".runs r
WHERE r.owner IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM "{schema}".workers w WHERE w.id = r.owner)
ORDER BY r.key LIMIT 10;

-- name: gaps
-- Runs whose journals are not dense.
SELECT r.id FROM (
    SELECT run FROM "{schema}".journal GROUP BY run HAVING min(seq) <> 1 OR max(seq) <> count(*)
    LIMIT 10) torn JOIN "{schema}".runs r ON r.key = torn.run;
