-- Who may be claimed, and whose turn it is in a session.

-- name: RUN_LANE
-- How a run waits its turn; see runs_ready in schema.sql, whose column this is.
CASE WHEN epoch > 0 THEN '>' ELSE '' END || CASE WHEN fairness_key = '' THEN ''
    WHEN ready_at > updated_at THEN '-' ELSE '+' || fairness_key END

-- name: READY_HEADS
-- Every (workflow, queue, priority) with runs that can be claimed some time, found by jumping through
-- the index: however many runs wait there, it is one step.
WITH RECURSIVE heads (workflow, queue, priority) AS (
    SELECT first.workflow, first.queue, first.priority
    FROM json_each(:workflows) served CROSS JOIN runs first ON first.key = (
        SELECT key FROM runs
        WHERE workflow = served.value AND ready_at IS NOT NULL AND blocked = 0
        ORDER BY queue, priority LIMIT 1)
    UNION ALL
    SELECT other.workflow, other.queue, other.priority
    FROM heads CROSS JOIN runs other ON other.key = coalesce(
        (SELECT key FROM runs
        WHERE workflow = heads.workflow AND queue = heads.queue AND priority > heads.priority
          AND ready_at IS NOT NULL AND blocked = 0
        ORDER BY priority LIMIT 1),
        (SELECT key FROM runs
        WHERE workflow = heads.workflow AND queue > heads.queue
          AND ready_at IS NOT NULL AND blocked = 0
        ORDER BY queue, priority LIMIT 1))
)

-- name: ready_heads
-- Where to look for runs that can be claimed, and whether there are any with fairness keys, in line or
-- to be put there.
READY_HEADS
SELECT workflow, queue, priority,
    EXISTS (
        SELECT 1 FROM runs
        WHERE workflow = heads.workflow AND queue = heads.queue AND priority = heads.priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE > '+' AND RUN_LANE < ',')
    OR EXISTS (
        SELECT 1 FROM runs
        WHERE workflow = heads.workflow AND queue = heads.queue AND priority = heads.priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE > '>+' AND RUN_LANE < '>,'),
    EXISTS (
        SELECT 1 FROM runs
        WHERE workflow = heads.workflow AND queue = heads.queue AND priority = heads.priority
          AND ready_at <= :now AND blocked = 0 AND RUN_LANE IN ('-', '>-'))
FROM heads;

-- name: put_in_line
-- Runs with fairness keys that have slept until now take their places in line.
UPDATE runs SET updated_at = :now WHERE key IN (
    SELECT key FROM runs
    WHERE workflow = :workflow AND queue = :queue AND priority = :priority
      AND ready_at <= :now AND blocked = 0 AND RUN_LANE IN ('-', '>-')
    LIMIT :limit);

-- name: keyed_lanes
-- The fairness keys in line, from a certain one on, and how often each was served.
WITH RECURSIVE lanes (lane) AS (
    SELECT (SELECT min(RUN_LANE) FROM runs
        WHERE workflow = :workflow AND queue = :queue AND priority = :priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE >= :from AND RUN_LANE < :until)
    UNION ALL
    SELECT (SELECT min(RUN_LANE) FROM runs
        WHERE workflow = :workflow AND queue = :queue AND priority = :priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE > lanes.lane AND RUN_LANE < :until)
    FROM lanes WHERE lanes.lane IS NOT NULL
    LIMIT :limit + 1
)
SELECT substr(lane, :prefix + 1), (
    SELECT served FROM shares WHERE queue = :queue AND key = substr(lane, :prefix + 1))
FROM lanes WHERE lane IS NOT NULL LIMIT :limit;

-- name: claimable
-- The first few runs of some lanes that are due, each with the number of its lane.
SELECT RUN_COLUMNS, (SELECT max(j.seq) FROM journal j WHERE j.run = r.key), lanes.key
FROM json_each(:lanes) lanes CROSS JOIN runs r ON r.key IN (
    SELECT key FROM (
        SELECT key FROM runs
        WHERE workflow = json_extract(lanes.value, '$[0]')
          AND queue = json_extract(lanes.value, '$[1]') AND priority = :priority
          AND RUN_LANE = json_extract(lanes.value, '$[2]')
          AND ready_at <= :now AND blocked = 0 AND strikes < :strikes
        ORDER BY ready_at LIMIT :limit)
    UNION ALL
    SELECT key FROM (
        SELECT key FROM runs
        WHERE workflow = json_extract(lanes.value, '$[0]')
          AND queue = json_extract(lanes.value, '$[1]') AND priority = :priority
          AND RUN_LANE = json_extract(lanes.value, '$[3]')
          AND ready_at <= :now AND blocked = 0 AND strikes < :strikes
        ORDER BY ready_at LIMIT :limit))
ORDER BY r.ready_at, r.key;

-- name: next_ready
-- When the next run can be claimed in each place, if its queue allows it: a new one, or one that was
-- claimed before. Those in line with a fairness key are due; which of them is the first does not matter.
READY_HEADS
SELECT queue,
    min((SELECT min(ready_at) FROM runs
        WHERE workflow = heads.workflow AND queue = heads.queue AND priority = heads.priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE = '' AND strikes < :strikes)),
    min((SELECT min(ready_at) FROM runs
        WHERE workflow = heads.workflow AND queue = heads.queue AND priority = heads.priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE = '-' AND strikes < :strikes)),
    min((SELECT ready_at FROM runs
        WHERE workflow = heads.workflow AND queue = heads.queue AND priority = heads.priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE > '+' AND RUN_LANE < ','
          AND strikes < :strikes LIMIT 1)),
    min((SELECT min(ready_at) FROM runs
        WHERE workflow = heads.workflow AND queue = heads.queue AND priority = heads.priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE = '>' AND strikes < :strikes)),
    min((SELECT min(ready_at) FROM runs
        WHERE workflow = heads.workflow AND queue = heads.queue AND priority = heads.priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE = '>-' AND strikes < :strikes)),
    min((SELECT ready_at FROM runs
        WHERE workflow = heads.workflow AND queue = heads.queue AND priority = heads.priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE > '>+' AND RUN_LANE < '>,'
          AND strikes < :strikes LIMIT 1))
FROM heads GROUP BY queue;

-- name: in_queue
-- Whether a queue was declared, and whether any run of a workflow is in it: most often, neither.
SELECT EXISTS (SELECT 1 FROM queues WHERE name = :queue), EXISTS (
    SELECT 1 FROM runs
    WHERE workflow = :workflow AND queue = :queue AND ready_at IS NOT NULL AND blocked = 0);

-- name: is_behind
-- Whether a new run of this workflow, queue and priority has others ahead of it; and the next higher
-- priority, where the same is to be asked.
SELECT EXISTS (
        SELECT 1 FROM runs
        WHERE workflow = :workflow AND queue = :queue AND priority = :priority
          AND ready_at <= :now AND blocked = 0 AND RUN_LANE IN ('', '-', '>', '>-'))
    OR EXISTS (
        SELECT 1 FROM runs
        WHERE workflow = :workflow AND queue = :queue AND priority = :priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE > '+' AND RUN_LANE < ',')
    OR EXISTS (
        SELECT 1 FROM runs
        WHERE workflow = :workflow AND queue = :queue AND priority = :priority
          AND ready_at IS NOT NULL AND blocked = 0 AND RUN_LANE > '>+' AND RUN_LANE < '>,'),
    (SELECT min(priority) FROM runs
        WHERE workflow = :workflow AND queue = :queue AND priority > :priority
          AND ready_at IS NOT NULL AND blocked = 0);

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
