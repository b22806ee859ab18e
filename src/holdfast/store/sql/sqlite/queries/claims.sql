-- Who may be claimed, and whose turn it is in a session.

-- name: READY_LANES
-- Every (workflow, priority) with claimable runs, found by jumping through the index: however many
-- runs wait in a lane, it is one step.
WITH RECURSIVE lanes (workflow, priority) AS (
    SELECT served.value, (
        SELECT max(priority) FROM runs
        WHERE workflow = served.value AND ready_at IS NOT NULL AND blocked = 0)
    FROM json_each(:workflows) served
    UNION ALL
    SELECT lanes.workflow, (
        SELECT max(priority) FROM runs
        WHERE workflow = lanes.workflow AND ready_at IS NOT NULL AND blocked = 0
          AND priority < lanes.priority)
    FROM lanes WHERE lanes.priority IS NOT NULL
)

-- name: claimable
-- The first few runs that are due: the best of each lane, then the best of those.
READY_LANES
SELECT RUN_COLUMNS, (SELECT max(j.seq) FROM journal j WHERE j.run = r.key)
FROM lanes CROSS JOIN runs r ON r.key IN (
    SELECT due.key FROM runs due
    WHERE due.workflow = lanes.workflow AND due.priority = lanes.priority
      AND due.ready_at <= :now AND due.blocked = 0 AND due.strikes < :strikes
    ORDER BY due.ready_at LIMIT :limit)
ORDER BY r.priority DESC, r.ready_at, r.key
LIMIT :limit;

-- name: next_ready
-- When the next run of these workflows can be claimed.
READY_LANES
SELECT min((
    SELECT min(ready_at) FROM runs
    WHERE workflow = lanes.workflow AND priority = lanes.priority
      AND ready_at IS NOT NULL AND blocked = 0 AND strikes < :strikes))
FROM lanes;

-- name: take
-- Makes a worker the owner of a run.
UPDATE runs
SET status = 'running', owner = ?, epoch = ?, ready_at = NULL, reason = NULL, updated_at = ?,
    holds_session = session IS NOT NULL
WHERE key = ?;

-- name: is_worker
-- Whether a worker is registered.
SELECT 1 FROM workers WHERE id = ?;

-- name: holder
-- The run that holds a session: the oldest, if children of it share the slot.
SELECT min(key) FROM runs WHERE session = ? AND holds_session = 1;

-- name: holds
-- Whether a run holds its session, alone or with others.
SELECT holds_session FROM runs WHERE key = ?;

-- name: inherits
-- Whether this parent, or one further up that awaits it, holds the session.
WITH RECURSIVE line (key, parent, parent_step, session, holds_session) AS (
    SELECT key, parent, parent_step, session, holds_session FROM runs WHERE key = ?
    UNION ALL
    SELECT up.key, up.parent, up.parent_step, up.session, up.holds_session
    FROM line JOIN runs up ON up.key = line.parent
    WHERE line.parent_step IS NOT NULL
)
SELECT EXISTS (SELECT 1 FROM line WHERE session = ? AND holds_session = 1);

-- name: turn
-- Where a run stands that is due, belongs to a session and does not hold it.
SELECT session, parent, parent_step FROM runs
WHERE key = ? AND session IS NOT NULL AND ready_at <= ? AND holds_session = 0;

-- name: first_due
-- The oldest run of a session that could go on now.
SELECT key FROM runs
WHERE session = ? AND session IS NOT NULL AND ended_at IS NULL AND ready_at <= ?
ORDER BY key LIMIT 1;

-- name: first_ready
-- The run of a session that will be due first.
SELECT key FROM runs
WHERE session = ? AND session IS NOT NULL AND ended_at IS NULL AND ready_at IS NOT NULL
ORDER BY ready_at, key LIMIT 1;

-- name: session_runs
-- The runs of a session that have not ended, oldest first.
SELECT key, id FROM runs
WHERE session = ? AND session IS NOT NULL AND ended_at IS NULL
ORDER BY key;

-- name: is_session_busy
-- Whether a session has a run that has not ended.
SELECT EXISTS (
    SELECT 1 FROM runs WHERE session = ? AND session IS NOT NULL AND ended_at IS NULL);

-- name: set_blocked
-- Takes a run out of the queue, or puts it back, as its session's turn goes.
UPDATE runs SET blocked = ? WHERE key = ?;

-- name: unblock_heirs
-- Lets the awaited children of a run that took its session go on in it.
WITH RECURSIVE heirs (key) AS (
    SELECT key FROM runs WHERE parent = ? AND parent_step IS NOT NULL AND ended_at IS NULL
    UNION ALL
    SELECT r.key FROM heirs CROSS JOIN runs r ON r.parent = heirs.key
    WHERE r.parent_step IS NOT NULL AND r.ended_at IS NULL
)
UPDATE runs SET blocked = 0
WHERE blocked = 1 AND session = ? AND key IN (SELECT key FROM heirs);

-- name: release
-- Hands a run back.
UPDATE runs
SET status = 'pending', owner = NULL, ready_at = :now, updated_at = :now,
    strikes = CASE WHEN strikes > 0 AND MADE_PROGRESS THEN 0 ELSE strikes END
WHERE key = :run AND epoch = :epoch AND owner = :worker;
