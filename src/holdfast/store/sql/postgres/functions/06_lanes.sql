-- Lanes: in which order runs are claimed, and how many.

-- Every (workflow, queue, priority) with runs that can be claimed some time, found by jumping through
-- the index: however many runs wait there, it is one step.
CREATE OR REPLACE FUNCTION ready_heads(_workflows text[])
RETURNS TABLE (workflow text, queue text, priority integer)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY WITH RECURSIVE heads AS (
        SELECT first.* FROM unnest(_workflows) AS served (name) CROSS JOIN LATERAL (
            SELECT r.workflow, r.queue, r.priority FROM ready r WHERE r.workflow = served.name
            ORDER BY r.queue, r.priority LIMIT 1) first
        UNION ALL
        SELECT other.* FROM heads CROSS JOIN LATERAL (
            SELECT r.workflow, r.queue, r.priority FROM ready r
            WHERE r.workflow = heads.workflow
              AND (r.queue, r.priority) > (heads.queue, heads.priority)
            ORDER BY r.queue, r.priority LIMIT 1) other
    )
    SELECT h.workflow, h.queue, h.priority FROM heads h;
END $$;

-- The fairness keys in line, from a certain one on.
CREATE OR REPLACE FUNCTION keyed_lanes(
    _workflow text, _queue text, _priority integer, _prefix text, _from text, _limit integer)
RETURNS TABLE (key text)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE lanes AS (
        (SELECT r.lane FROM ready r
        WHERE r.workflow = _workflow AND r.queue = _queue AND r.priority = _priority
          AND r.lane >= _prefix || _from AND r.lane < left(_prefix, -1) || ','
        ORDER BY r.lane LIMIT 1)
        UNION ALL
        SELECT other.lane FROM lanes CROSS JOIN LATERAL (
            SELECT r.lane FROM ready r
            WHERE r.workflow = _workflow AND r.queue = _queue AND r.priority = _priority
              AND r.lane > lanes.lane AND r.lane < left(_prefix, -1) || ','
            ORDER BY r.lane LIMIT 1) other
    )
    SELECT substr(lane, length(_prefix) + 1) FROM lanes LIMIT _limit;
$$;

-- The same, of all; when there are too many to look at, from a random one on, and round to the first again.
CREATE OR REPLACE FUNCTION in_line(
    _workflow text, _queue text, _priority integer, _prefix text) RETURNS TABLE (key text)
LANGUAGE plpgsql AS $$
DECLARE
    _lanes_max constant integer := 1000;
    _keys text[] := ARRAY(
        SELECT l.key FROM keyed_lanes(_workflow, _queue, _priority, _prefix, '', _lanes_max) l);
BEGIN
    IF cardinality(_keys) >= _lanes_max THEN
        _keys := ARRAY(
            SELECT l.key FROM keyed_lanes(_workflow, _queue, _priority, _prefix,
                lpad(to_hex(floor(random() * 65536)::integer), 4, '0'), _lanes_max) l) || _keys;
    END IF;
    RETURN QUERY SELECT DISTINCT k FROM unnest(_keys[:_lanes_max]) k;
END $$;

-- Runs with fairness keys that have slept until now take their places in line.
CREATE OR REPLACE FUNCTION put_in_line(
    _workflows text[], _queues text[], _priority integer, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE runs SET updated_at = _now WHERE key IN (
        SELECT slept.key FROM unnest(_workflows, _queues) AS head (workflow, queue)
        CROSS JOIN unnest(ARRAY['-', '>-']) AS asleep (lane)
        CROSS JOIN LATERAL (
            SELECT r.key FROM ready r
            WHERE r.workflow = head.workflow AND r.queue = head.queue AND r.priority = _priority
              AND r.lane = asleep.lane AND r.ready_at <= _now
            ORDER BY r.ready_at LIMIT 1000 FOR UPDATE SKIP LOCKED) slept);
END $$;

-- The first few runs that are due in one lane, locked; a lane has a part of those that were never claimed.
CREATE OR REPLACE FUNCTION due_in_lane(
    _workflow text, _queue text, _priority integer, _lane text, _now bigint, _strikes integer,
    _limit integer)
RETURNS TABLE (key bigint, ready_at bigint, strikes integer, session text, is_new boolean)
LANGUAGE plpgsql ROWS 10 AS $$
BEGIN
    RETURN QUERY SELECT r.key, r.ready_at, r.strikes, r.session, left(_lane, 1) <> '>' FROM ready r
    WHERE r.workflow = _workflow AND r.queue = _queue AND r.priority = _priority
      AND r.lane = _lane AND r.ready_at <= _now AND r.strikes < _strikes
    ORDER BY r.ready_at, r.key LIMIT _limit FOR UPDATE SKIP LOCKED;
END $$;

-- What a queue still allows a worker to claim; NULL: as much as it likes. Asked by whoever has locked
-- the queue's row, and therefore sees the claims of all others.
CREATE OR REPLACE FUNCTION queue_room(_queue queues, _worker text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT least(
        CASE WHEN _queue.paused THEN 0 END,
        _queue.concurrency - CASE WHEN _queue.concurrency IS NOT NULL THEN (
            SELECT sum(has.runs) FROM workers w CROSS JOIN LATERAL (
                SELECT count(*) AS runs FROM runs r
                WHERE r.owner = w.id AND r.owner IS NOT NULL AND r.queue = _queue.name) has) END,
        _queue.per_worker - CASE WHEN _queue.per_worker IS NOT NULL THEN (
            SELECT count(*) FROM runs r
            WHERE r.owner = _worker AND r.owner IS NOT NULL AND r.queue = _queue.name) END);
$$;

-- How far apart a queue's rate sets first claims; NULL: it has none. Rounded up, so that it is never exceeded.
CREATE OR REPLACE FUNCTION rate_interval(_queue queues) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (_queue.rate_micros + _queue.rate_count - 1) / _queue.rate_count;
$$;

-- Counts runs for their keys: so many for each, which stood at `from` before, and now begins at least there.
CREATE OR REPLACE FUNCTION serve_shares(_queues text[], _keys text[], _from bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _share record;
BEGIN
    FOR _share IN
        SELECT queue, key, min(stood) AS stood, count(*) AS runs
        FROM unnest(_queues, _keys, _from) AS s (queue, key, stood)
        GROUP BY queue, key
        UNION ALL
        -- Where those that have been in line all the time are by now: where the last one stood.
        (SELECT DISTINCT ON (queue) queue, '', stood, 0
        FROM unnest(_queues, _from) WITH ORDINALITY AS s (queue, stood, place)
        ORDER BY queue, place DESC)
        ORDER BY queue, key  -- in which rows are locked
    LOOP
        INSERT INTO shares AS s (queue, key, served)
        VALUES (_share.queue, _share.key, _share.stood + _share.runs)
        ON CONFLICT (queue, key) DO UPDATE
        SET served = greatest(s.served, _share.stood) + _share.runs;
    END LOOP;
END $$;

-- Whether there are runs with fairness keys, asleep or in line.
CREATE OR REPLACE FUNCTION has_keys(_workflows text[], _queues text[], _priority integer)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM unnest(_workflows, _queues) AS head (workflow, queue)
        CROSS JOIN unnest(ARRAY['', '>'], ARRAY['>', '?']) AS part (a, z)
        CROSS JOIN LATERAL (
            SELECT 1 FROM ready r
            WHERE r.workflow = head.workflow AND r.queue = head.queue AND r.priority = _priority
              AND r.lane > part.a AND r.lane < part.z LIMIT 1) one);
END $$;

-- The lanes of one priority to take runs from: one for the runs of each workflow and queue that have no
-- fairness key, and of those with keys the first few. `ahead` of its queue's last by so many runs.
CREATE OR REPLACE FUNCTION lanes_in_turn(
    _workflows text[], _queues text[], _priority integer, _now bigint, _limit integer,
    _keyed boolean, _q queues[], _q_names text[], _q_room bigint[], _q_next bigint[],
    _s_queue text[], _s_key text[], _s_stood bigint[])
RETURNS TABLE (
    workflow text, queue text, new_too boolean, key text, stood bigint, chance float, ahead bigint)
LANGUAGE plpgsql ROWS 10 AS $$
BEGIN
    IF _q IS NULL AND NOT _keyed THEN  -- as always where nobody uses limits: what follows takes long
        RETURN QUERY SELECT p.workflow, p.queue, true, '', 0::bigint, random(), 0::bigint
        FROM unnest(_workflows, _queues) AS p (workflow, queue);
        RETURN;
    END IF;
    RETURN QUERY WITH places AS MATERIALIZED (
        SELECT p.workflow, p.queue, q.next_at IS NULL OR rate_interval(q.q) IS NULL
            OR q.next_at - ((q.q).rate_burst - 1) * rate_interval(q.q) <= _now AS new_too,
            (SELECT true FROM ready r
                WHERE r.workflow = p.workflow AND r.queue = p.queue
                  AND r.priority = _priority AND r.lane > '+' AND r.lane < ','
                LIMIT 1) AS new,
            (SELECT true FROM ready r
                WHERE r.workflow = p.workflow AND r.queue = p.queue
                  AND r.priority = _priority AND r.lane > '>+' AND r.lane < '>,'
                LIMIT 1) AS old
        FROM unnest(_workflows, _queues) AS p (workflow, queue)
        LEFT JOIN (
            SELECT * FROM unnest(_q_names, _q_room, _q_next) WITH ORDINALITY
                AS u (name, room, next_at, nth)
            CROSS JOIN LATERAL (SELECT _q[u.nth] AS q) whole
        ) q ON q.name = p.queue
        WHERE q.room IS NULL OR q.room > 0
    ), lanes AS MATERIALIZED (
        SELECT p.workflow, p.queue, p.new_too, '' AS key, 0::bigint AS stood FROM places p
        UNION ALL
        SELECT p.workflow, p.queue, p.new_too, k.key, greatest(0, lowest.served, s.served, (
            SELECT max(m.stood) + 1 FROM unnest(_s_queue, _s_key, _s_stood)
                AS m (queue, key, stood)
            WHERE m.queue = p.queue AND m.key = k.key))
        FROM places p CROSS JOIN LATERAL (
            SELECT l.key FROM in_line(p.workflow, p.queue, _priority, '+') l
            WHERE p.new_too AND p.new
            UNION
            SELECT l.key FROM in_line(p.workflow, p.queue, _priority, '>+') l
            WHERE p.old) k
        LEFT JOIN shares s ON s.queue = p.queue AND s.key = k.key
        LEFT JOIN shares lowest ON lowest.queue = p.queue AND lowest.key = ''
    ), placed AS MATERIALIZED (
        SELECT l.*, random() AS chance, CASE WHEN l.key = '' THEN 0 ELSE l.stood
            - min(l.stood) FILTER (WHERE l.key <> '') OVER (PARTITION BY l.queue) END AS ahead
        FROM lanes l
    )
    -- Of those with a key, each has a run in line; of the others that is not known.
    SELECT * FROM placed p WHERE p.key = ''
    UNION ALL
    (SELECT * FROM placed p WHERE p.key <> '' ORDER BY p.ahead, p.chance LIMIT _limit);
END $$;
